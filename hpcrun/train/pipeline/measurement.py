"""Measurement of the time and memory of each call of a model, for the cut into stages."""

from __future__ import annotations

import json
import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from hpcrun.train.config_values import config_of, to_comparable
from hpcrun.train.pipeline.cut import Costs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcrun.train.pipeline.graph import Call, Graph
    from hpcrun.train.types import Data

UNKNOWN_SIZE = 64  # assumed size of an axis of unknown size other than the batch, such as the length of a text
BYTES_PER_WEIGHT_BYTE = 4  # of a trainable weight: the weight, its gradient, and two optimizer variables as Adam's
_SECONDS, _MAX_REPEATS = 0.1, 8  # a call is repeated until either is reached


def measure(graph: Graph, batch_size: int) -> Costs:
    """Measure the calls of a model; equal layers are measured once.

    Args:
        graph: The model's calls; its weights need no values yet.
        batch_size: Number of samples of a micro-batch.
    """
    costs, seconds, counted = Costs([], [], [], []), dict[str, tuple[float, float]](), set[int]()
    for call in graph.calls:
        key = _key(call)
        if key not in seconds:
            seconds[key] = (0.0, 0.0)
            with suppress(Exception):  # the values of this test may be invalid for a layer, such as positions
                seconds[key] = _measure_call(call, batch_size)
        costs.forward.append(seconds[key][0])
        costs.backward.append(seconds[key][1])
        new = {id(variable): variable for variable in call.variables if id(variable) not in counted}
        counted |= set(new)
        costs.weights.append(sum(map(_weight_bytes, new.values())))
        costs.activations.append(sum(tensor_bytes(tensor, batch_size) for tensor in call.outputs))
    return costs


def tensor_bytes(tensor: keras.KerasTensor, batch_size: int) -> int:
    """Return the size of a tensor of a micro-batch in bytes."""
    return math.prod(_shape(tensor, batch_size)) * _itemsize(tensor.dtype)


def _weight_bytes(variable: keras.Variable) -> int:
    size: int = math.prod(variable.shape) * _itemsize(variable.dtype)
    return size * BYTES_PER_WEIGHT_BYTE if variable.trainable else size


def _itemsize(dtype: str) -> int:
    import ml_dtypes  # noqa: F401  (registers bfloat16)

    return np.dtype(dtype).itemsize if dtype != "string" else 16


def _shape(tensor: keras.KerasTensor, batch_size: int) -> list[int]:
    first, *others = tensor.shape or (1,)
    return [batch_size if first is None else first, *(UNKNOWN_SIZE if size is None else size for size in others)]


def _key(call: Call) -> str:
    shapes = [(tensor.shape, tensor.dtype) for tensor in (*call.inputs, *call.outputs)]
    if call.operation is None:
        return json.dumps(["cast", str(shapes)])
    weights = [tuple(variable.shape) for variable in call.variables]
    return json.dumps([type(call.operation).__name__, to_comparable(config_of(call.operation)), str((shapes, weights))])


def _measure_call(call: Call, batch_size: int) -> tuple[float, float]:
    """Return the seconds of the forward and of the backward pass of a call."""
    import tensorflow as tf

    if call.operation is None:
        return 0.0, 0.0
    variables = call.variables
    weights = [_values(variable, variable.shape) for variable in variables]
    tensors = [_values(tensor, _shape(tensor, batch_size)) for tensor in call.arguments.keras_tensors]

    def forward(weights: Sequence[Data], tensors: Sequence[Data]) -> list[Data]:
        known = {id(t): value for t, value in zip(call.arguments.keras_tensors, tensors, strict=True)}
        arguments, keywords = call.arguments.fill_in(known)
        if "training" in getattr(call.operation, "_call_context_args", ()):
            keywords["training"] = True
        with keras.StatelessScope(list(zip(variables, weights, strict=True)), initialize_variables=False):
            return [tf.convert_to_tensor(t) for t in keras.tree.flatten(call.operation(*arguments, **keywords))]

    def forward_backward(weights: Sequence[Data], tensors: Sequence[Data]) -> list[Data]:
        sources = [value for value in (*weights, *tensors) if value.dtype.is_floating]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            outputs = [output for output in forward(weights, tensors) if output.dtype.is_floating]
        gradients = tape.gradient(outputs, sources, output_gradients=list(map(tf.ones_like, outputs)))
        return [outputs, [g for g in gradients if g is not None]]

    forward_seconds, both = (
        _best_time(tf.function(function, autograph=False).get_concrete_function(weights, tensors), weights, tensors)
        for function in (forward, forward_backward)
    )
    return forward_seconds, max(0.0, both - forward_seconds)


def _values(like: Any, shape: Sequence[int]) -> Data:
    import tensorflow as tf

    dtype = tf.as_dtype(like.dtype)
    return tf.fill(list(shape), tf.cast(0.01, dtype)) if dtype.is_floating else tf.zeros(list(shape), dtype)


def _best_time(function: Callable[..., Any], *arguments: Any) -> float:
    """Return the seconds of a call; on CPUs its processor time, since other ranks may be busy on the same cores."""
    import tensorflow as tf

    clock = time.perf_counter if tf.config.list_physical_devices("GPU") else time.process_time
    function(*arguments)  # the first call is slower
    durations: list[float] = []
    while len(durations) < _MAX_REPEATS and sum(durations) < _SECONDS:
        start = clock()
        for tensor in keras.tree.flatten(function(*arguments)):
            if isinstance(tensor, tf.Tensor):
                tensor[..., :0].numpy() if tensor.shape.rank else tensor.numpy()  # wait for the device
        durations.append(clock() - start)
    return min(durations)
