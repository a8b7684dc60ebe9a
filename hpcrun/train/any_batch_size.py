"""Functions of TensorFlow that are traced for any batch size.

A graph for one batch size may round differently than a graph for any: if the first batch decided, as `tf.function`
does by itself, a training that is resumed at the smaller last batch of an epoch would not end with the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.train.types import Data


def compile_for_any_batch_size(
    function: Callable[..., Data], specs: Data = None, *, jit_compile: bool = False
) -> Callable[..., Data]:
    """Return a function as a `tf.function` whose graph does not depend on the batch size of its first call.

    Args:
        function: A function of structures of tensors, (b, ...) or scalars, and of None.
        specs: The `tf.TypeSpec` of each tensor of the arguments, if known; by default, all axes but that of the samples
            have the size of the first call.
        jit_compile: Whether XLA compiles the function.
    """
    compiled = tf.function(function, reduce_retracing=True, autograph=False, jit_compile=jit_compile)
    is_traced = False

    def call(*arguments: Data) -> Data:
        nonlocal is_traced
        if not is_traced:  # later calls use this general graph if it fits them
            known = arguments if specs is None else specs
            compiled.get_concrete_function(*keras.tree.map_structure(_general_spec, known, arguments))
            is_traced = True
        return compiled(*arguments)

    return call


def _general_spec(known: Data, tensor: Data) -> Data:
    if tensor is None:
        return None
    if isinstance(known, tf.TypeSpec) and getattr(known, "shape", tensor.shape).rank is not None:
        return known
    return tf.TensorSpec([None, *tensor.shape[1:]] if tensor.shape.rank else [], tensor.dtype)
