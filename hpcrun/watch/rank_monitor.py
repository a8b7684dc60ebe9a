"""Detection of ranks that delay the others: silent, stalled and slow ranks, and deadlocks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median_low
from typing import TYPE_CHECKING

from hpcrun.jobs import heartbeats
from hpcrun.watch.format import format_duration, format_step_time

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hpcrun.jobs.heartbeats import Heartbeat

SILENT_HEARTBEATS = 4
"""Number of missing heartbeats after which a rank counts as silent."""

LONG_WAIT_HEARTBEATS = 2
"""Waiting time, in heartbeats, after which a wait is reported."""

SLOW_FRACTION = 0.2
"""A rank counts as slow if it makes a step longer by this fraction."""

FEW_RANKS = 16
"""Up to this number of ranks, heartbeats are read at every update; of more ranks, as often as they are written."""


@dataclass(frozen=True)
class RankStatus:
    """The observed status of a rank.

    Attributes:
        heartbeat: Its latest heartbeat.
        age: The age of the heartbeat in s.
        trouble: ``silent``, ``awaited``, ``waiting`` (all live ranks wait), ``slow``, or empty.
        description: The trouble as text, with the rank's position in its script.
    """

    heartbeat: Heartbeat
    age: float
    trouble: str = ""
    description: str = ""

    @property
    def wait_fraction(self) -> float:
        """The fraction of a step in which it waits for other ranks."""
        return 1 - self.heartbeat.own_seconds / self.heartbeat.step_seconds if self.heartbeat.step_seconds > 0 else 0.0


class RankMonitor:
    """Observes the ranks of one job.

    Args:
        directory: The run directory.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._heartbeats: dict[int, Heartbeat] = {}
        self._heard: dict[int, float] = {}  # when the heartbeat was written, by this process's clock
        self._next = 0.0

    def update(self) -> list[RankStatus]:
        """Read the heartbeats, and return all ranks that have ever written one, in order."""
        now = time.monotonic()
        if now >= self._next:
            self._read(now)
        ranks = [
            RankStatus(heartbeat, max(0.0, now - self._heard[rank])) for rank, heartbeat in self._heartbeats.items()
        ]
        return classify_ranks(ranks)

    def _read(self, now: float) -> None:
        latest = heartbeats.read_heartbeats(self.directory, heartbeats.find_ranks(self.directory))
        for rank, heartbeat in latest.items():
            before = self._heartbeats.get(rank)
            if before is None:
                self._heard[rank] = now - max(0.0, time.time() - heartbeat.time)
            elif before != heartbeat:  # clocks of hosts may differ; that it changed is certain
                self._heard[rank] = now
        self._heartbeats = latest
        self._next = now if len(latest) <= FEW_RANKS else now + max(heartbeat.every for heartbeat in latest.values())


def classify_ranks(ranks: Sequence[RankStatus]) -> list[RankStatus]:
    """Return the ranks, each with what is wrong with it.

    Args:
        ranks: All ranks of a job that runs.
    """
    alive = [rank for rank in ranks if not rank.heartbeat.ended and not _is_silent(rank)]
    own_times = [rank.heartbeat.own_seconds for rank in alive if rank.heartbeat.step_seconds > 0]
    typical = median_low(own_times) if own_times else 0.0
    stuck = any(map(_is_stalled, alive))
    deadlock = stuck and all(map(_is_stalled, alive)) and not any(map(_is_silent, ranks))
    return [_classify(rank, typical, stuck=stuck, deadlock=deadlock) for rank in ranks]


def _is_silent(rank: RankStatus) -> bool:
    return not rank.heartbeat.ended and rank.age > SILENT_HEARTBEATS * rank.heartbeat.every


def _is_stalled(rank: RankStatus) -> bool:
    return bool(rank.heartbeat.waits) and rank.heartbeat.waited_seconds >= LONG_WAIT_HEARTBEATS * rank.heartbeat.every


def _classify(rank: RankStatus, typical: float, *, stuck: bool, deadlock: bool) -> RankStatus:
    heartbeat = rank.heartbeat
    trouble, description = "", ""
    if heartbeat.ended:
        description = "its script has ended"
    elif _is_silent(rank):
        trouble, description = "silent", "silent: dead, stopped or unreachable"
    elif stuck and not heartbeat.waits:
        trouble, description = "awaited", f"awaited: it is at {heartbeat.at or 'an unknown line'}"
    elif deadlock:
        trouble, description = "waiting", f"waits {format_duration(heartbeat.waited_seconds)} in {heartbeat.waits}"
    elif heartbeat.step_seconds > 0 and heartbeat.own_seconds - typical > SLOW_FRACTION * heartbeat.step_seconds:
        trouble, description = "slow", f"slow: others take {format_step_time(typical)}"
    elif _is_stalled(rank):
        description = f"waits {format_duration(heartbeat.waited_seconds)} in {heartbeat.waits}"
    return RankStatus(heartbeat, rank.age, trouble, description)


def worst_first(ranks: Sequence[RankStatus]) -> list[RankStatus]:
    """Sort ranks by how much they delay the others.

    Args:
        ranks: Classified ranks.
    """
    order = ("silent", "awaited", "waiting", "slow", "")
    return sorted(ranks, key=lambda rank: (order.index(rank.trouble), -rank.heartbeat.own_seconds, rank.heartbeat.rank))
