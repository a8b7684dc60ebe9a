"""Refusal of layers whose gradients TensorFlow would mix up."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import tensorflow as tf

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.train.pipeline.graph import Call


def refuse_eager_functions(calls: Sequence[Call]) -> None:
    """Raise an error if the graph that is being traced has a `tf.py_function`.

    TensorFlow keeps one gradient tape for each of them, that of its last call, so a forward pass of another micro-batch
    before the backward pass would replace it. (A `tf.numpy_function` has no gradient.)

    Args:
        calls: The calls of the graph, for the message.

    Raises:
        HpcrunError: A layer of the graph calls a `tf.py_function`.
    """
    graph = tf.compat.v1.get_default_graph().as_graph_def()
    nodes = chain(graph.node, *(function.node_def for function in graph.library.function))
    for node in nodes:
        if node.op == "EagerPyFunc":
            names = [call.name for call in calls if node.name.startswith(call.name)]
            layer = max(names, key=len, default=node.name)
            raise HpcrunError(
                f"the layer {layer!r} calls tf.py_function, of which TensorFlow keeps the gradient of the last call "
                "only, and a stage computes several micro-batches before it needs the first one's gradient",
                hint="write it with operations of TensorFlow or Keras, or give recompute=True",
            )
