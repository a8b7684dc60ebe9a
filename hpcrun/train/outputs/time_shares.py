"""Shares of compute, data and network in the time of training steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

MIN_IDLE_SHARE = 0.1  # waits for the slowest rank below this share of time are not mentioned


class StepTimes(NamedTuple):
    """Seconds of a rank's steps: in total, in waits for data, and in waits for the network; the rest is compute."""

    total: float
    data: float
    network: float


def describe(ranks: Sequence[StepTimes]) -> tuple[dict[str, float], str]:
    """Return the time shares of the slowest rank, largest first, and a sentence about the bottleneck.

    Args:
        ranks: Times of each rank, in rank order.
    """
    idle_shares = [times.network / times.total for times in ranks]
    slowest_rank = idle_shares.index(min(idle_shares))
    times = ranks[slowest_rank]
    shares = {"compute": times.total - times.data - times.network, "data": times.data}
    if len(ranks) > 1:
        shares["network"] = times.network
    shares = {name: round(max(0.0, seconds) / times.total, 3) for name, seconds in shares.items()}
    shares = dict(sorted(shares.items(), key=lambda item: -item[1]))
    (largest, share), *smaller_shares = shares.items()
    sentence = f"{largest} was the bottleneck: {share:.0%} of the step time"
    sentence += "".join(f", {name} {share:.0%}" for name, share in smaller_shares)
    excess_idle_share = sum(idle_shares) / len(idle_shares) - idle_shares[slowest_rank] if len(ranks) > 1 else 0.0
    if excess_idle_share > MIN_IDLE_SHARE:
        idle_share_of_others = excess_idle_share * len(ranks) / (len(ranks) - 1)
        sentence += f"; the other ranks waited {idle_share_of_others:.0%} of the time for rank {slowest_rank}"
    return shares, sentence
