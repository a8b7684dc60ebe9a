"""How much this rank counts in the batch that all ranks are computing on."""

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
    """Let gradients, losses and batch statistics inside the block count by this rank's share of the batch.

    Args:
        share: b_r / B, a float or a scalar tensor: of the B samples of the batch this rank has b_r. 0 where it has
            none and computes on a sample that must not count.
    """
    before, _current[0] = _current[0], share
    try:
        yield
    finally:
        _current[0] = before


def current_share() -> Data:
    """Return this rank's share, or None outside of `use_share`: then all ranks count alike."""
    return _current[0]


def record_share(share: float | None) -> None:
    """Remember this rank's share of the last batch that was trained on; None where there was none yet."""
    _last[0] = share


def last_share() -> float | None:
    """Return what `record_share` was told last."""
    return _last[0]
