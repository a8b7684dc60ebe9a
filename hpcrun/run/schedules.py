"""Decay of the learning rate by epoch, as factors of the full learning rate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEDULES = ("step", "cosine", "exponential", "constant")
_DROP_FRACTIONS = (30 / 90, 60 / 90, 80 / 90)  # the learning rate drops at these fractions of all epochs


def decay(
    schedule: str, epochs: int, *, factor: float | None = None, epochs_per_decay: float | None = None
) -> Callable[[int], float]:
    """Return a function that converts an epoch, from 0, to a factor of the full learning rate.

    Args:
        schedule: "step": multiply by `factor` after 1/3, 2/3 and 8/9 of all epochs, as after epochs 30, 60 and 80 of 90
            in Goyal et al. (arXiv:1706.02677, section 5.1). "cosine": half a cosine wave from 1 to 0 (Loshchilov and
            Hutter, arXiv:1608.03983). "exponential": multiply by `factor` after every `epochs_per_decay` epochs, as in
            Inception's training program. "constant": always 1.
        epochs: Number of epochs of the whole training, including epochs before a restart.
        factor: Factor of "step" (default: 0.1) and "exponential" (default: 0.94).
        epochs_per_decay: Number of epochs between two decays of "exponential" (default: 2).

    Raises:
        HpcrunError: The schedule is unknown.
    """
    if schedule == "step":
        step_factor = 0.1 if factor is None else factor
        return lambda epoch: step_factor ** sum(epoch >= round(fraction * epochs) for fraction in _DROP_FRACTIONS)
    if schedule == "cosine":
        return lambda epoch: (1 + math.cos(math.pi * epoch / epochs)) / 2
    if schedule == "exponential":
        base, interval = 0.94 if factor is None else factor, epochs_per_decay or 2
        return lambda epoch: base ** (epoch // interval)
    if schedule == "constant":
        return lambda _: 1.0
    raise HpcrunError(f"there is no schedule {schedule!r}", hint=", ".join(SCHEDULES))
