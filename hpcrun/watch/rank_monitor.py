"""Detection of ranks that delay other ranks: silent, stalled and slow ranks, and deadlocks."""

from __future__ import annotations

import time
from statistics import median_low
from typing import TYPE_CHECKING

from hpcrun.frozen import frozen
from hpcrun.jobs import heartbeats
from hpcrun.watch.format import format_duration, format_step_time

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hpcrun.jobs.heartbeats import Heartbeat

SILENT_HEARTBEATS = 4
"""Time without a heartbeat after which a rank counts as silent, in heartbeat intervals."""

LONG_WAIT_HEARTBEATS = 2
"""Time after which a rank that waits is reported, in heartbeat intervals."""

SLOW_FRACTION = 0.2
"""A rank counts as slow if it makes each step longer by this fraction."""

MAX_FREQUENTLY_READ_RANKS = 16
"""Up to this number of ranks, each update reads the heartbeats; with more ranks, they are read once per heartbeat
interval."""


@frozen
class RankStatus:
    """The observed status of a rank.

    Attributes:
        heartbeat: The rank's latest heartbeat.
        age: The age of the heartbeat in s.
        trouble: ``silent`` without a recent heartbeat; ``awaited`` if other ranks wait for this rank; ``waiting`` if
            all live ranks wait for each other; ``slow`` if the rank delays each step; empty otherwise.
        description: The problem as text, with the line of the script that the rank executes.
    """

    heartbeat: Heartbeat
    age: float
    trouble: str = ""
    description: str = ""


class RankMonitor:
    """A monitor of the ranks of one job.

    Args:
        directory: The run directory.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._heartbeats: dict[int, Heartbeat] = {}
        # time at which each heartbeat was written, by this process's clock
        self._heartbeat_times: dict[int, float] = {}
        self._next_read = 0.0

    def update(self) -> list[RankStatus]:
        """Read the heartbeats, and return the status of all ranks that have written one, in ascending order."""
        now = time.monotonic()
        if now >= self._next_read:
            self._read(now)
        ranks = [
            RankStatus(heartbeat, max(0.0, now - self._heartbeat_times[rank]))
            for rank, heartbeat in self._heartbeats.items()
        ]
        return classify_ranks(ranks)

    def _read(self, now: float) -> None:
        heartbeats_by_rank = heartbeats.read_heartbeats(self.directory, heartbeats.find_ranks(self.directory))
        for rank, heartbeat in heartbeats_by_rank.items():
            previous_heartbeat = self._heartbeats.get(rank)
            if previous_heartbeat is None:
                self._heartbeat_times[rank] = now - max(0.0, time.time() - heartbeat.time)
            elif (
                previous_heartbeat != heartbeat
            ):  # a changed heartbeat is reliable evidence; the clock of another host is not
                self._heartbeat_times[rank] = now
        self._heartbeats = heartbeats_by_rank
        self._next_read = (
            now
            if len(heartbeats_by_rank) <= MAX_FREQUENTLY_READ_RANKS
            else now + max(heartbeat.every for heartbeat in heartbeats_by_rank.values())
        )


def classify_ranks(ranks: Sequence[RankStatus]) -> list[RankStatus]:
    """Return the status of each rank, with its problem if any.

    Args:
        ranks: All ranks of a running job, with empty `trouble`.
    """
    live_ranks = [rank for rank in ranks if not rank.heartbeat.ended and not _is_silent(rank)]
    own_step_times = [rank.heartbeat.own_seconds for rank in live_ranks if rank.heartbeat.own_seconds > 0]
    median_time = median_low(own_step_times) if own_step_times else 0.0
    has_stalled = any(map(_is_stalled, live_ranks))
    is_deadlock = has_stalled and all(map(_is_stalled, live_ranks)) and not any(map(_is_silent, ranks))
    return [_classify(rank, median_time, has_stalled=has_stalled, is_deadlock=is_deadlock) for rank in ranks]


def _is_silent(rank: RankStatus) -> bool:
    return not rank.heartbeat.ended and rank.age > SILENT_HEARTBEATS * rank.heartbeat.every


def _is_stalled(rank: RankStatus) -> bool:
    return bool(rank.heartbeat.waits) and rank.heartbeat.waited_seconds >= LONG_WAIT_HEARTBEATS * rank.heartbeat.every


def _classify(rank: RankStatus, median_time: float, *, has_stalled: bool, is_deadlock: bool) -> RankStatus:
    heartbeat = rank.heartbeat
    trouble, description = "", ""
    if heartbeat.ended:
        description = "its script has ended"
    elif _is_silent(rank):
        trouble, description = "silent", "silent: dead, stopped or unreachable"
    elif has_stalled and not heartbeat.waits:
        trouble, description = "awaited", f"awaited: it is at {heartbeat.at or 'an unknown line'}"
    elif is_deadlock:
        trouble, description = "waiting", f"waits {format_duration(heartbeat.waited_seconds)} in {heartbeat.waits}"
    elif heartbeat.step_seconds > 0 and heartbeat.own_seconds - median_time > SLOW_FRACTION * heartbeat.step_seconds:
        trouble, description = "slow", f"slow: others take {format_step_time(median_time)}"
    elif _is_stalled(rank):
        description = f"waits {format_duration(heartbeat.waited_seconds)} in {heartbeat.waits}"
    return RankStatus(heartbeat, rank.age, trouble, description)


def sort_by_trouble(ranks: Sequence[RankStatus]) -> list[RankStatus]:
    """Sort ranks by severity of their problems, then by computing time per step, longest first.

    Args:
        ranks: The result of `classify_ranks`.
    """
    troubles = ("silent", "awaited", "waiting", "slow", "")
    return sorted(
        ranks, key=lambda rank: (troubles.index(rank.trouble), -rank.heartbeat.own_seconds, rank.heartbeat.rank)
    )
