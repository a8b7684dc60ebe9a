"""Learning rate decay by epochs, as factors of the full rate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEDULES = ("step", "cosine", "exponential", "constant")
_STEPS = (30 / 90, 60 / 90, 80 / 90)  # of all epochs


def decay(
    schedule: str, epochs: int, *, factor: float | None = None, epochs_per_decay: float | None = None
) -> Callable[[int], float]:
    """Return the function of the epoch, from 0, that gives its learning rate as a factor of the full rate.

    Args:
        schedule: "step": times `factor` (0.1) after 1/3, 2/3 and 8/9 of all epochs, which are the epochs 30, 60 and 80
            of 90 in Goyal et al. (arXiv:1706.02677, section 5.1). "cosine": half a cosine from 1 to 0 (Loshchilov and
            Hutter, arXiv:1608.03983). "exponential": times `factor` (0.94) every `epochs_per_decay` (2) epochs, at
            once, as in Inception's program. "constant": 1.
        epochs: All epochs of the training.
        factor: See above.
        epochs_per_decay: See above.

    Raises:
        HpcrunError: There is no such schedule.
    """
    if schedule == "step":
        each = 0.1 if factor is None else factor
        return lambda epoch: each ** sum(epoch >= round(part * epochs) for part in _STEPS)
    if schedule == "cosine":
        return lambda epoch: (1 + math.cos(math.pi * epoch / epochs)) / 2
    if schedule == "exponential":
        base, every = 0.94 if factor is None else factor, epochs_per_decay or 2
        return lambda epoch: base ** (epoch // every)
    if schedule == "constant":
        return lambda _: 1.0
    raise HpcrunError(f"there is no schedule {schedule!r}", hint=", ".join(SCHEDULES))
