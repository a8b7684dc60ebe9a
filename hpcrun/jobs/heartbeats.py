"""The latest heartbeats of ranks: ``heartbeats/rank-N.json``, written by `hpcrun.run` and `hpcrun.train`."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING

from hpcrun.frozen import frozen
from hpcrun.jobs import safe_reading

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from hpcrun.jobs.record_validation import JsonObject, Seconds, Time


@frozen
class Heartbeat:
    """The heartbeat of one rank; missing values are 0 or empty.

    Attributes:
        rank: The rank.
        host: The rank's host.
        every: Seconds between two heartbeats.
        time: The time of the heartbeat by the host's clock, in s since 1970.
        ended: Whether the rank's script has ended.
        waits: The collective call in which the rank waits for other ranks; empty if it does not wait.
        waited_seconds: The time that the rank has waited in this call, in s.
        at: The line of its script that the rank executes.
        activity: The activity of the rank before training, such as ``imports TensorFlow``; empty otherwise.
        activity_seconds: The duration of the activity so far, in s.
        phase: ``training``, ``validation`` or ``trained``; empty before the first ``fit``.
        fit: Index of the current ``fit`` call in the script, from 0.
        epoch: Number of the current epoch, from 1.
        epochs: Total number of epochs.
        step: Number of completed steps of the current epoch.
        steps: Number of steps per epoch.
        first: The epoch and the number of completed steps at which the ``fit`` call began.
        step_seconds: Mean time of the latest steps, in s.
        own_seconds: The part of `step_seconds` in which this rank did not wait for other ranks; 0 if unknown.
        sent_bytes: How many bytes of gradients the rank has sent to other ranks per step; 0 if unknown.
        codec: The name of the codec in which the rank sends gradients; ``auto`` until one is chosen.
        images_per_second: Training rate of all ranks together.
        fit_seconds: The duration of the ``fit`` call so far, in s (rank 0 only).
        logs: Keras's metrics by name (rank 0 only).
        points: Loss and training rate over time (rank 0 only).
    """

    rank: int
    every: Seconds
    time: Time
    host: str = ""
    ended: bool = False
    waits: str = ""
    waited_seconds: float = 0.0
    at: str = ""
    activity: str = ""
    activity_seconds: float = 0.0
    phase: str = ""
    fit: int = 0
    epoch: int = 0
    epochs: int = 0
    step: int = 0
    steps: int = 0
    first: list[int] = field(default_factory=list)
    step_seconds: float = 0.0
    own_seconds: float = 0.0
    sent_bytes: float = 0.0
    codec: str = ""
    images_per_second: float = 0.0
    fit_seconds: float = 0.0
    logs: JsonObject = field(default_factory=dict)
    points: list[list[float | None]] = field(default_factory=list)

    @property
    def wait_fraction(self) -> float:
        """The fraction of a step in which the rank communicates with other ranks or waits for them; 0 if unknown."""
        own, whole = self.own_seconds, self.step_seconds
        return 1 - own / whole if own > 0 and whole > 0 else 0.0


def read_heartbeat(directory: Path, rank: int, faults: dict[str, str] | None = None) -> Heartbeat | None:
    """Return a rank's latest heartbeat; None if there is no readable heartbeat.

    Args:
        directory: The run directory.
        rank: The rank.
        faults: Dict to which this function adds the error messages of invalid files, by file name.
    """
    name = f"heartbeats/rank-{rank}.json"
    try:
        # a rank writes null for an unknown value
        return safe_reading.read_record(directory / name, Heartbeat, skip_wrong_types=True)
    except safe_reading.BadRecordError as error:
        if faults is not None:
            faults[name] = error.why
        return None


def find_ranks(directory: Path) -> list[int]:
    """Return the ranks that have written a heartbeat, in ascending order.

    Args:
        directory: The run directory.
    """
    names = (re.fullmatch(r"rank-([0-9]{1,9})\.json", file.name) for file in directory.glob("heartbeats/rank-*.json"))
    return sorted(int(name[1]) for name in names if name)


def read_heartbeats(directory: Path, ranks: Iterable[int]) -> dict[int, Heartbeat]:
    """Return the latest heartbeats of some ranks, by rank.

    Args:
        directory: The run directory.
        ranks: The ranks.
    """
    return {rank: heartbeat for rank in ranks if (heartbeat := read_heartbeat(directory, rank))}


def read_newer_heartbeat(directory: Path, faults: dict[str, str] | None = None) -> Heartbeat | None:
    """Return rank 0's heartbeat; None if the last line of ``metrics.jsonl`` is newer.

    Args:
        directory: The run directory.
        faults: Dict to which this function adds the error messages of invalid files, by file name.
    """
    heartbeat = read_heartbeat(directory, 0, faults)
    try:
        return heartbeat if heartbeat and heartbeat.time >= (directory / "metrics.jsonl").stat().st_mtime else None
    except OSError:
        return heartbeat
