"""Functions of TensorFlow that are traced for any batch size.

A graph for one batch size may round differently than a graph for any: if the first batch decided, as `tf.function`
does by itself, a training that is resumed at the smaller last batch of an epoch would not end with the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

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
    graph = general = None
    fits: dict[Hashable, bool] = {}

    def call(*arguments: Data) -> Data:
        nonlocal graph, general
        if graph is None:
            known = arguments if specs is None else specs
            general = keras.tree.map_structure(_general_spec, known, arguments)
            graph = compiled.get_concrete_function(*general)
        kind = _kind(arguments)
        if kind not in fits:
            fits[kind] = _fits(general, arguments)
        if fits[kind] and not tf.config.functions_run_eagerly():
            return graph(*arguments)  # without `tf.function`'s search for a graph, which costs more than the call
        return compiled(*arguments)

    return call


def _kind(data: Data) -> Hashable:
    """Return types, shapes and dtypes of a structure of tensors."""
    if isinstance(data, dict):
        return type(data), tuple([(key, _kind(item)) for key, item in data.items()])
    if isinstance(data, (list, tuple)):
        return type(data), tuple([_kind(item) for item in data])
    return None if data is None else (type(data), data.dtype, tuple(data.shape))


def _fits(spec: Data, data: Data) -> bool:
    """Return whether a graph for a structure of `tf.TypeSpec` takes a structure of tensors."""
    if isinstance(spec, dict):
        return type(data) is type(spec) and spec.keys() == data.keys() and all(_fits(spec[k], data[k]) for k in spec)
    if isinstance(spec, (list, tuple)):
        return type(data) is type(spec) and len(spec) == len(data) and all(map(_fits, spec, data))
    return data is None if spec is None else bool(spec.is_compatible_with(data))


def _general_spec(known: Data, tensor: Data) -> Data:
    if tensor is None:
        return None
    if isinstance(known, tf.TypeSpec) and getattr(known, "shape", tensor.shape).rank is not None:
        return known
    return tf.TensorSpec([None, *tensor.shape[1:]] if tensor.shape.rank else [], tensor.dtype)
