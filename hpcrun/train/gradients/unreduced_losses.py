"""Warning about unreduced losses in `tape.gradient`, whose sums the ranks would take for means.

The gradient of a vector is that of its sum. A rank's gradient is taken for a mean over its samples (see `Reducer`), so
the gradient of a loss per sample comes out divided by the number of ranks. The optimizer does not see the loss, and the
tape does not see the optimizer: so the tape's variables are recorded until the optimizer gets them.
"""

from __future__ import annotations

import weakref
from functools import wraps
from typing import TYPE_CHECKING, Any

import keras

from hpcrun.train.backends import without_autograph
from hpcrun.train.gradients.embedding_lookups import probe_lengths
from hpcrun.train.ranks.world import print_line, world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import tensorflow as tf

    from hpcrun.train.types import Data

_MAX_EAGER_VALUES = 8  # up to this size, a vector may hold several losses that are means already

_hooked: list[bool] = []
_warned: list[bool] = []
_unreduced: dict[int, tuple[weakref.ref[Any], object]] = {}  # variables whose last gradient was of an unreduced loss


def watch_gradient_tapes() -> None:
    """Inspect the arguments of `tf.GradientTape.gradient` from now on; a second call has no effect."""
    if keras.backend.backend() == "tensorflow" and not _hooked:
        import tensorflow as tf

        _hooked.append(True)
        tf.GradientTape.gradient = without_autograph(_wrap_gradient(tf.GradientTape.gradient))


def warn_about_unreduced_loss(optimizer: keras.optimizers.Optimizer, variables: Iterable[Data] | None) -> None:
    """Warn, once, if the gradients of a step are those of a loss per sample.

    Args:
        optimizer: The optimizer of the step.
        variables: The variables of the step; None for all of the optimizer.
    """
    if _warned or not _unreduced:
        return
    if variables is None:
        variables = getattr(optimizer, "inner_optimizer", optimizer)._trainable_variables  # noqa: SLF001
    records = (_unreduced.get(id(variable)) for variable in map(_tf_variable, variables))
    found = next((record for record in records if record and record[0]() is not None), None)
    if found is None:
        return
    _warned.append(True)
    _unreduced.clear()
    if world().rank == 0:
        print_line(
            f"WARNING: tape.gradient was given a loss per sample, of shape {found[1]}: the gradient is that of "
            "their sum, which ranks take for a mean, so the weights will differ from those of one process\n"
            "HINT: tape.gradient(tf.reduce_mean(loss), variables), and the learning rate that goes with a mean"
        )


def _wrap_gradient(gradient: Callable[..., Data]) -> Callable[..., Data]:
    @wraps(gradient)
    def wrapper(  # TensorFlow's signature
        tape: tf.GradientTape, target: Data, sources: Data, output_gradients: Data = None, *args: Data, **kwargs: Data
    ) -> Data:
        if not _warned and output_gradients is None:  # output_gradients weigh the samples
            _record_target(target, sources)
        return gradient(tape, target, sources, output_gradients, *args, **kwargs)

    return wrapper


def _record_target(target: Data, sources: Data) -> None:
    import tensorflow as tf

    tensors = [each for each in keras.tree.flatten(target) if tf.is_tensor(each)]
    wide = next((t for t in tensors if t.shape.rank and t.shape.num_elements() != 1 and _grows_with_batch(t)), None)
    if wide is None and not _unreduced:
        return
    for variable in map(_tf_variable, keras.tree.flatten(sources)):
        _unreduced.pop(id(variable), None)
        if wide is not None and isinstance(variable, tf.Variable):
            _unreduced[id(variable)] = weakref.ref(variable), wide.shape


def _grows_with_batch(tensor: tf.Tensor) -> bool:
    """Return whether a tensor grows with the number of samples, as far as visible."""
    import tensorflow as tf

    if not tf.is_symbolic_tensor(tensor):
        return bool(tensor.shape.num_elements() > _MAX_EAGER_VALUES)
    few, many = probe_lengths(tensor)
    return few is None or few != many


def _tf_variable(variable: Data) -> Data:
    return variable.value if isinstance(variable, keras.Variable) else variable
