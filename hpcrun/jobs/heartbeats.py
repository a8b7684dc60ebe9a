"""What the ranks of a training last said of themselves: ``heartbeats/rank-N.json``, written by `hpcrun.train`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hpcrun.jobs import records

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from hpcrun.jobs.kinds import Object, Seconds, Time


@dataclass(frozen=True)
class Heartbeat:
    """One rank's sign of life; what it did not say is 0 or empty.

    Attributes:
        rank: The rank.
        host: Its host.
        every: Seconds between two of them.
        time: When, in s since 1970, by the host's clock.
        ended: Whether its script has ended.
        waits: What it waits for the others in.
        waited_seconds: For how long.
        at: Where its script is.
        phase: ``training``, ``validation``, ``trained``; empty before any ``fit``.
        fit: Which ``fit`` of its script it is in, from 0.
        epoch: The epoch, from 1.
        epochs: How many there are to be.
        step: Steps of this epoch that are done.
        steps: How many an epoch has.
        first: The epoch, and the steps of it that had been done before, with which the ``fit`` began.
        step_seconds: What a step takes of late.
        own_seconds: How much of that this rank did not wait for the others.
        images_per_second: The rate, of all ranks.
        fit_seconds: How long the ``fit`` has been going on (rank 0).
        logs: Keras's figures (rank 0).
        points: Loss and rate in the course of the ``fit`` (rank 0).
    """

    rank: int
    every: Seconds
    time: Time
    host: str = ""
    ended: bool = False
    waits: str = ""
    waited_seconds: float = 0.0
    at: str = ""
    phase: str = ""
    fit: int = 0
    epoch: int = 0
    epochs: int = 0
    step: int = 0
    steps: int = 0
    first: list[int] = field(default_factory=list)
    step_seconds: float = 0.0
    own_seconds: float = 0.0
    images_per_second: float = 0.0
    fit_seconds: float = 0.0
    logs: Object = field(default_factory=dict)
    points: list[list[float | None]] = field(default_factory=list)


def read(directory: Path, rank: int, faults: dict[str, str] | None = None) -> Heartbeat | None:
    """Return a rank's last sign of life; None where there is none that can be read.

    Args:
        directory: The run directory.
        rank: The rank.
        faults: Gets what is wrong with the file, by its name.
    """
    name = f"heartbeats/rank-{rank}.json"
    try:
        return records.read(directory / name, Heartbeat, in_part=True)  # what a rank does not know is null
    except records.BadRecordError as error:
        if faults is not None:
            faults[name] = error.why
        return None


def ranks(directory: Path) -> list[int]:
    """Return the ranks that have given a sign of life, in order.

    Args:
        directory: The run directory.
    """
    names = (re.fullmatch(r"rank-([0-9]{1,9})\.json", file.name) for file in directory.glob("heartbeats/rank-*.json"))
    return sorted(int(name[1]) for name in names if name)


def read_all(directory: Path, which: Iterable[int]) -> dict[int, Heartbeat]:
    """Return ranks' last signs of life, by rank.

    Args:
        directory: The run directory.
        which: The ranks.
    """
    return {rank: beat for rank in which if (beat := read(directory, rank))}


def newest(directory: Path, faults: dict[str, str] | None = None) -> Heartbeat | None:
    """Return what rank 0 said, unless what it wrote at the end of an epoch is newer.

    Args:
        directory: The run directory.
        faults: Gets what is wrong with the file, by its name.
    """
    beat = read(directory, 0, faults)
    try:
        return beat if beat and beat.time >= (directory / "metrics.jsonl").stat().st_mtime else None
    except OSError:
        return beat
