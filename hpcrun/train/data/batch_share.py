"""This rank's share of the current batch: the weight of its gradients and losses."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import keras

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.train.types import Data

_current_share: list[Data] = [None]
_last_share: list[float | None] = [None]


@contextmanager
def use_share(share: Data) -> Iterator[None]:
    """Context manager in which gradients, losses and batch statistics are weighted by this rank's share of the batch.

    Args:
        share: b_r / B, a float or a scalar tensor, for a rank with b_r of the B samples. 0 if the rank has no sample
            and computes on a placeholder sample.
    """
    if _is_graph_tensor(share):
        _share_variable().assign(share)
    outer_share, _current_share[0] = _current_share[0], share
    try:
        yield
    finally:
        _current_share[0] = outer_share


def current_share() -> Data:
    """Return this rank's share of the batch; None outside of `use_share`, where all ranks have the same weight."""
    share = _current_share[0]
    if _is_graph_tensor(share):
        import tensorflow as tf

        # Use a variable: a user's tf.function is traced once and called in several graphs, so it must not contain a
        # tensor of one graph.
        if share.graph is not tf.compat.v1.get_default_graph():
            return _share_variable().read_value()
    return share


def record_share(share: float | None) -> None:
    """Record this rank's share of the last training batch, or None at the beginning of an epoch."""
    _last_share[0] = share


def last_share() -> float | None:
    """Return this rank's share of the last training batch; None before the first batch of an epoch."""
    return _last_share[0]


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
