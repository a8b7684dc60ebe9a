"""What Keras's three backends do each in its own way: running Python in the middle of a step, and waiting for it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import keras
import numpy as np

from hpcrun.errors import HpcrunError
from hpcrun.train.numpy_function import numpy_function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hpcrun.train.types import Data

    Array = np.ndarray[Any, Any]

_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")
_errors: list[HpcrunError] = []
_keepalive: list[Any] = []


def without_autograph(function: Callable[_Params, _Result]) -> Callable[_Params, _Result]:
    """Keep a function from AutoGraph, which rewrites the Python that a user's `tf.function` calls, and what that calls.

    Args:
        function: What a compiled step may call.
    """
    if keras.backend.backend() != "tensorflow":
        return function
    import tensorflow as tf

    return tf.autograph.experimental.do_not_convert(function)  # type: ignore[no-any-return]  # tensorflow is untyped


@without_autograph
def call_on_host(
    function: Callable[..., Sequence[Array]],
    tensors: Sequence[Data],
    shapes: Sequence[Sequence[int | None]],
    dtypes: str | Sequence[str],
    keepalive: list[Any] | None = None,
) -> list[Data]:
    """Call a Python function on the values of some tensors, inside a compiled step or outside.

    Such calls keep their order, which is the same on all ranks, so that a collective in one meets its counterparts.

    Args:
        function: From NumPy arrays, which it must not write to, to arrays, which may be views of memory that its next
            call overwrites.
        tensors: Its arguments.
        shapes: Of its results.
        dtypes: Of its results; one for all, or one each.
        keepalive: What holds the function for as long as the step may run; without one this module does.

    Returns:
        The results, as tensors.

    Raises:
        HpcrunError: XLA compiles the step on TensorFlow.
    """

    def called(*arrays: Array) -> list[Array]:
        try:
            return list(function(*arrays))
        except HpcrunError as error:
            _errors.append(error)  # the backend makes another error of it
            raise

    dtypes = [dtypes] * len(shapes) if isinstance(dtypes, str) else dtypes
    backend = keras.backend.backend()
    if backend == "tensorflow":
        if is_compiled_by_xla():
            raise HpcrunError(
                "XLA cannot compile a step that adds up over the ranks in the middle of it",
                hint="let XLA compile what comes before and after: tf.function(jit_compile=True) around the gradients",
            )
        # A list in and a list out: TensorFlow passes both without a copy, where concat and split would cost one each.
        results = numpy_function(called, tensors, dtypes, _keepalive if keepalive is None else keepalive)
        for result, shape in zip(results, shapes, strict=True):
            result.set_shape(shape)
        return results
    if backend == "jax":
        import jax
        from jax.experimental import io_callback

        def copied(*arrays: Array) -> list[Array]:  # JAX may keep an aligned array as it is, and read it later
            return [np.array(result) for result in called(*map(np.asarray, arrays))]

        results = [jax.ShapeDtypeStruct(tuple(shape), dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
        return list(io_callback(copied, results, *tensors, ordered=True))
    return [keras.ops.convert_to_tensor(array) for array in called(*map(keras.ops.convert_to_numpy, tensors))]


def is_compiled_by_xla() -> bool:
    """Return whether XLA compiles what happens now, on TensorFlow."""
    import tensorflow as tf
    from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext  # there is no public way to ask

    return bool(GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


@contextmanager
def reraise_original() -> Iterator[None]:
    """Let an `HpcrunError` that was raised inside a compiled step out as what it was."""
    _errors.clear()
    try:
        yield
    except HpcrunError:
        raise
    except Exception:
        if _errors:
            raise _errors[0] from None
        raise


def wait_for_step(logs: Data) -> None:
    """Wait for the step that gave some logs: JAX returns from it before it has run."""
    if keras.backend.backend() == "jax":
        import jax

        jax.block_until_ready(logs)
        jax.effects_barrier()
