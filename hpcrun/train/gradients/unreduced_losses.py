"""Warning about `tape.gradient` of an unreduced loss, which gives wrong gradients on several ranks.

TensorFlow computes the gradient of an unreduced loss as the gradient of its sum. `Reducer` treats each rank's gradient
as a mean over samples, so the result would be too small by the number of ranks. Only the tape sees the loss, and only
the optimizer knows that gradients are averaged. So the tape's variables are recorded until an optimizer step uses them.
"""

from __future__ import annotations

import weakref
from functools import wraps
from typing import TYPE_CHECKING, Any

import keras

from hpcrun.run.job import print_line
from hpcrun.train.backends import without_autograph
from hpcrun.train.gradients.embedding_lookups import probe_lengths
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import tensorflow as tf

    from hpcrun.train.types import Data

_MAX_EAGER_VALUES = 8  # a vector of up to this size may contain several losses, each already reduced to a mean

_is_hooked: list[bool] = []
_warned: list[bool] = []
_unreduced_variables: dict[
    int, tuple[weakref.ref[Any], object]
] = {}  # variables whose last gradient came from an unreduced loss


def watch_gradient_tapes() -> None:
    """Patch `tf.GradientTape.gradient` to inspect its arguments; a second call has no effect."""
    if keras.backend.backend() == "tensorflow" and not _is_hooked:
        import tensorflow as tf

        _is_hooked.append(True)
        tf.GradientTape.gradient = without_autograph(_wrap_gradient(tf.GradientTape.gradient))


def warn_about_unreduced_loss(optimizer: keras.optimizers.Optimizer, variables: Iterable[Data] | None) -> None:
    """Warn once if the gradients of a step come from an unreduced loss.

    Args:
        optimizer: The optimizer of the step.
        variables: The variables of the step; None: all variables of the optimizer.
    """
    if _warned or not _unreduced_variables:
        return
    if variables is None:
        variables = getattr(optimizer, "inner_optimizer", optimizer)._trainable_variables  # noqa: SLF001
    records = (_unreduced_variables.get(id(variable)) for variable in map(_to_tf_variable, variables))
    unreduced_record = next((record for record in records if record and record[0]() is not None), None)
    if unreduced_record is None:
        return
    _warned.append(True)
    _unreduced_variables.clear()
    if world().rank == 0:
        print_line(
            f"WARNING: tape.gradient was given a loss per sample, of shape {unreduced_record[1]}: the gradient is "
            "that of their sum, which ranks take for a mean, so the weights will differ from those of one process\n"
            "HINT: tape.gradient(tf.reduce_mean(loss), variables), and the learning rate that goes with a mean"
        )


def _wrap_gradient(gradient: Callable[..., Data]) -> Callable[..., Data]:
    @wraps(gradient)
    def wrapper(  # the signature of TensorFlow's method
        tape: tf.GradientTape, target: Data, sources: Data, output_gradients: Data = None, *args: Data, **kwargs: Data
    ) -> Data:
        if not _warned and output_gradients is None:  # output_gradients are weights of the samples
            _record_target(target, sources)
        return gradient(tape, target, sources, output_gradients, *args, **kwargs)

    return wrapper


def _record_target(target: Data, sources: Data) -> None:
    import tensorflow as tf

    tensors = [tensor for tensor in keras.tree.flatten(target) if tf.is_tensor(tensor)]
    unreduced_loss = next(
        (t for t in tensors if t.shape.rank and t.shape.num_elements() != 1 and _grows_with_batch(t)), None
    )
    if unreduced_loss is None and not _unreduced_variables:
        return
    for variable in map(_to_tf_variable, keras.tree.flatten(sources)):
        _unreduced_variables.pop(id(variable), None)
        if unreduced_loss is not None and isinstance(variable, tf.Variable):
            _unreduced_variables[id(variable)] = weakref.ref(variable), unreduced_loss.shape


def _grows_with_batch(tensor: tf.Tensor) -> bool:
    """Return whether the size of a tensor depends on the number of samples, as far as known."""
    import tensorflow as tf

    if not tf.is_symbolic_tensor(tensor):
        return bool(tensor.shape.num_elements() > _MAX_EAGER_VALUES)
    small_size, large_size = probe_lengths(tensor)
    return small_size is None or small_size != large_size


def _to_tf_variable(variable: Data) -> Data:
    return variable.value if isinstance(variable, keras.Variable) else variable
