"""This rank's share of the current batch."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import keras

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.train.types import Data

_current: list[Data] = [None]
_last: list[float | None] = [None]


@contextmanager
def use_share(share: Data) -> Iterator[None]:
    """Weigh gradients, losses and batch statistics inside the block by this rank's share of the batch.

    Args:
        share: b_r / B, a float or a scalar tensor: this rank's b_r of the B samples. 0 if it has none and computes on a
            placeholder.
    """
    if _is_graph_tensor(share):
        _share_variable().assign(share)
    outer_share, _current[0] = _current[0], share
    try:
        yield
    finally:
        _current[0] = outer_share


def current_share() -> Data:
    """Return this rank's share, or None outside of `use_share`: then all ranks have the same weight."""
    share = _current[0]
    if _is_graph_tensor(share):
        import tensorflow as tf

        # A user's tf.function inside the step is traced once, and runs in the graphs of several steps: it must not
        # contain the tensor of one of them.
        if share.graph is not tf.compat.v1.get_default_graph():
            return _share_variable().read_value()
    return share


def record_share(share: float | None) -> None:
    """Record this rank's share of the last training batch; None before the first."""
    _last[0] = share


def last_share() -> float | None:
    """Return the last recorded share."""
    return _last[0]


def _is_graph_tensor(share: Data) -> bool:
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return bool(tf.is_tensor(share) and tf.is_symbolic_tensor(share))


@cache
def _share_variable() -> Data:
    """Return the variable that holds the share of a compiled TensorFlow step."""
    import tensorflow as tf

    with tf.init_scope(), tf.device("CPU"):
        return tf.Variable(0.0, dtype="float32", trainable=False, name="share")
