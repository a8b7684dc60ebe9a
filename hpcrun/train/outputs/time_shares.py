"""The shares of compute, data and network in the time of the steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

MIN_IDLE_SHARE = 0.1  # of the time, for which the other ranks wait for one, from which on it is worth a remark


class StepTimes(NamedTuple):
    """Seconds of a rank's steps; all of it that is neither data nor network is compute."""

    total: float
    data: float
    network: float


def describe(ranks: Sequence[StepTimes]) -> tuple[dict[str, float], str]:
    """Return the shares of the slowest rank, largest first, and a sentence about them.

    Args:
        ranks: The times of all ranks, in rank order.
    """
    idle = [times.network / times.total for times in ranks]
    slowest = idle.index(min(idle))
    times = ranks[slowest]
    shares = {"compute": times.total - times.data - times.network, "data": times.data}
    if len(ranks) > 1:
        shares["network"] = times.network
    shares = {name: round(max(0.0, seconds) / times.total, 3) for name, seconds in shares.items()}
    shares = dict(sorted(shares.items(), key=lambda item: -item[1]))
    (first, share), *others = shares.items()
    sentence = f"{first} was the bottleneck: {share:.0%} of the step time"
    sentence += "".join(f", {name} {share:.0%}" for name, share in others)
    excess = sum(idle) / len(idle) - idle[slowest] if len(ranks) > 1 else 0.0
    if excess > MIN_IDLE_SHARE:
        others_idle = excess * len(ranks) / (len(ranks) - 1)
        sentence += f"; the other ranks waited {others_idle:.0%} of the time for rank {slowest}"
    return shares, sentence
