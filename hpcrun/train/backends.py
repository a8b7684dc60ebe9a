"""Functions for each Keras backend: Python calls inside compiled steps, errors, and waiting for a step."""

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
_recorded_errors: list[HpcrunError] = []
_explanations: list[Callable[[Exception], HpcrunError | None]] = []
_keepalive: list[Any] = []


def without_autograph(function: Callable[_Params, _Result]) -> Callable[_Params, _Result]:
    """Prevent AutoGraph from rewriting a function that a user's `tf.function` calls.

    Args:
        function: A function that a compiled step calls.
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
    """Call a Python function on the values of tensors, inside or outside a compiled step.

    Calls are executed in the same order on all ranks, so that collectives inside the functions match.

    Args:
        function: Function of NumPy arrays, not to be modified, that returns arrays, possibly views of a buffer that the
            next call overwrites.
        tensors: The arguments of the function.
        shapes: Shape of each result.
        dtypes: Dtype of all results, or a dtype for each result.
        keepalive: List that keeps the function alive as long as the step may run; default: a list in this module.

    Returns:
        The results, as tensors.

    Raises:
        HpcrunError: XLA compiles the step (on TensorFlow).
    """

    def call_and_record_errors(*arrays: Array) -> list[Array]:
        try:
            return list(function(*arrays))
        except HpcrunError as error:
            record_error(error)
            raise

    dtypes = [dtypes] * len(shapes) if isinstance(dtypes, str) else dtypes
    backend = keras.backend.backend()
    if backend == "tensorflow":
        if is_compiled_by_xla():
            raise HpcrunError(
                "XLA cannot compile a training step that contains an allreduce",
                hint="compile only the computation of gradients, in a tf.function(jit_compile=True)",
            )
        # Pass a list of tensors, which TensorFlow does not copy; concat and split would each copy the values.
        results = numpy_function(
            call_and_record_errors, tensors, dtypes, _keepalive if keepalive is None else keepalive
        )
        for result, shape in zip(results, shapes, strict=True):
            result.set_shape(shape)
        return results
    if backend == "jax":
        import jax
        from jax.experimental import io_callback

        # copy the results: JAX may keep an aligned array after the call without copying it
        def call_and_copy_results(*arrays: Array) -> list[Array]:
            return [np.array(result) for result in call_and_record_errors(*map(np.asarray, arrays))]

        results = [jax.ShapeDtypeStruct(tuple(shape), dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
        return list(io_callback(call_and_copy_results, results, *tensors, ordered=True))
    return [
        keras.ops.convert_to_tensor(array)
        for array in call_and_record_errors(*map(keras.ops.convert_to_numpy, tensors))
    ]


def record_error(error: HpcrunError) -> None:
    """Record an error in Python code that the backend calls, because the backend hides it; see `reraise_original`."""
    _recorded_errors.append(error)


def add_error_explanation(explain: Callable[[Exception], HpcrunError | None]) -> None:
    """Register a function that converts a backend error to an `HpcrunError` or None; see `reraise_original`."""
    _explanations.append(explain)


def is_compiled_by_xla() -> bool:
    """Return whether XLA compiles the current TensorFlow graph."""
    import tensorflow as tf
    from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext  # TensorFlow has no public one

    return bool(GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))


@contextmanager
def reraise_original() -> Iterator[None]:
    """Replace a backend exception in the block by the `HpcrunError` of the compiled step or its data that caused it."""
    _recorded_errors.clear()
    try:
        yield
    except HpcrunError:
        raise
    except Exception as error:
        known_causes = iter([*_recorded_errors, *filter(None, (explain(error) for explain in _explanations))])
        if original := next(known_causes, None):
            raise original from None
        raise


def is_computed(tensors: Data) -> bool:
    """Return whether all tensors of a structure have been computed; JAX returns tensors before they are computed."""
    return all(tensor.is_ready() for tensor in keras.tree.flatten(tensors) if hasattr(tensor, "is_ready"))


def wait_for_step(logs: Data) -> None:
    """Wait until the step that returned the logs is complete; JAX returns logs before the step is complete."""
    if keras.backend.backend() == "jax":
        import jax

        jax.block_until_ready(logs)
        jax.effects_barrier()
