"""Which ranks keep the others waiting: those that fell silent, hang or are slow; or all, for one another."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median_low
from typing import TYPE_CHECKING

from hpcrun.jobs import heartbeats
from hpcrun.watch.words import span, step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hpcrun.jobs.heartbeats import Heartbeat

SILENT = 4
"""A rank is silent when so many of its heartbeats have not come."""

LONG = 2
"""For so many heartbeats others wait for a rank before it is told."""

SLOW = 0.2
"""A rank is slow where a step would be shorter by this part, were the rank like the others."""

FEW = 16
"""Files of so many ranks are read at every look; those of more, as often as they are written."""


@dataclass(frozen=True)
class Seen:
    """A rank, as it is seen.

    Attributes:
        beat: What it said last.
        age: For how long it has not said anything, in s.
        trouble: ``silent``, ``awaited``, ``waiting`` (as all others that live), ``slow``, or nothing.
        says: The same in words, with where it is.
    """

    beat: Heartbeat
    age: float
    trouble: str = ""
    says: str = ""

    @property
    def waits(self) -> float:
        """The part of a step in which it waits for the others."""
        return 1 - self.beat.own_seconds / self.beat.step_seconds if self.beat.step_seconds > 0 else 0.0


class Ranks:
    """The ranks of one job, looked at again and again.

    Args:
        directory: The run directory.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._beats: dict[int, Heartbeat] = {}
        self._heard: dict[int, float] = {}  # when the beat was said, by this process's clock
        self._next = 0.0

    def look(self) -> list[Seen]:
        """Return all ranks that have ever given a sign of life, in order."""
        now = time.monotonic()
        if now >= self._next:
            self._read(now)
        seen = [Seen(beat, max(0.0, now - self._heard[rank])) for rank, beat in self._beats.items()]
        return judged(seen)

    def _read(self, now: float) -> None:
        beats = heartbeats.read_all(self.directory, heartbeats.ranks(self.directory))
        for rank, beat in beats.items():
            before = self._beats.get(rank)
            if before is None:
                self._heard[rank] = now - max(0.0, time.time() - beat.time)
            elif before != beat:  # clocks of hosts may differ; that it changed is certain
                self._heard[rank] = now
        self._beats = beats
        self._next = now if len(beats) <= FEW else now + max(beat.every for beat in beats.values())


def judged(seen: Sequence[Seen]) -> list[Seen]:
    """Return the ranks, each with what is wrong with it.

    Args:
        seen: All ranks of a job that runs.
    """
    alive = [rank for rank in seen if not rank.beat.ended and not _silent(rank)]
    paces = [rank.beat.own_seconds for rank in alive if rank.beat.step_seconds > 0]
    usual = median_low(paces) if paces else 0.0
    stuck = any(map(_waits_long, alive))
    nobody_goes_on = stuck and all(map(_waits_long, alive)) and not any(map(_silent, seen))
    return [_judged(rank, usual, stuck=stuck, nobody_goes_on=nobody_goes_on) for rank in seen]


def _silent(rank: Seen) -> bool:
    return not rank.beat.ended and rank.age > SILENT * rank.beat.every


def _waits_long(rank: Seen) -> bool:
    return bool(rank.beat.waits) and rank.beat.waited_seconds >= LONG * rank.beat.every


def _judged(rank: Seen, usual: float, *, stuck: bool, nobody_goes_on: bool) -> Seen:
    beat = rank.beat
    trouble, says = "", ""
    if beat.ended:
        says = "its script has ended"
    elif _silent(rank):
        trouble, says = "silent", "silent: dead, stopped or cut off"
    elif stuck and not beat.waits:
        trouble, says = "awaited", f"awaited: it is at {beat.at or 'no known place'}"
    elif nobody_goes_on:
        trouble, says = "waiting", f"waits {span(beat.waited_seconds)} in {beat.waits}"
    elif beat.step_seconds > 0 and beat.own_seconds - usual > SLOW * beat.step_seconds:
        trouble, says = "slow", f"slow: others take {step(usual)}"
    elif _waits_long(rank):
        says = f"waits {span(beat.waited_seconds)} in {beat.waits}"
    return Seen(beat, rank.age, trouble, says)


def worst_first(seen: Sequence[Seen]) -> list[Seen]:
    """Return the ranks with those first that keep the others waiting most.

    Args:
        seen: Ranks that have been judged.
    """
    order = ("silent", "awaited", "waiting", "slow", "")
    return sorted(seen, key=lambda rank: (order.index(rank.trouble), -rank.beat.own_seconds, rank.beat.rank))
