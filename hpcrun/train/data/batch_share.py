"""This rank's share of the current batch."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

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
    outer_share, _current[0] = _current[0], share
    try:
        yield
    finally:
        _current[0] = outer_share


def current_share() -> Data:
    """Return this rank's share, or None outside of `use_share`: then all ranks have the same weight."""
    return _current[0]


def record_share(share: float | None) -> None:
    """Record this rank's share of the last training batch; None before the first."""
    _last[0] = share


def last_share() -> float | None:
    """Return the last recorded share."""
    return _last[0]
