"""Progress and rate of a training, and times, as text."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from hpcrun.resources import parse_time

if TYPE_CHECKING:
    from hpcrun.jobs.heartbeats import Heartbeat
    from hpcrun.jobs.run_files import Epoch

STOPPED_EARLY = "stopped early"
"""The mark of a training that ended before its last epoch, as by Keras's EarlyStopping."""


def format_progress(last: Epoch, now: Heartbeat | None = None, *, completed: bool = False) -> str:
    """Format the progress and speed of a training: ``epoch 3/90, step 40/390, 812 images/s``.

    Args:
        last: The last line of ``metrics.jsonl``.
        now: The newer heartbeat of rank 0, if the job is running.
        completed: Whether the job has succeeded, so that no epoch follows.
    """
    epoch, epochs, rate = last.epoch, last.epochs, last.images_per_second
    step = ""
    if now and now.epoch:
        epoch, epochs, rate = now.epoch, now.epochs, now.images_per_second or rate
        step = f"step {now.step}" + (f"/{now.steps}" if now.steps else "")
    words = []
    if epoch is not None:
        words.append(f"epoch {epoch}" + (f"/{epochs}" if epochs else ""))
        if epochs and epoch < epochs and (completed or (now and now.phase == "trained")):
            words.append(STOPPED_EARLY)
    if step:
        words.append(step)
    if rate and rate > 0:
        words.append(format_rate(rate))
    return ", ".join(words)


def format_rate(rate: float) -> str:
    """Format a training rate.

    Args:
        rate: The rate in images per second.
    """
    return f"{rate:{',.0f' if rate >= 10 else '.2g'}} images/s"


def normalize_time(time: object) -> str | None:
    """Convert a time to the format of squeue(1); return None for an invalid or unlimited time."""
    try:
        total = parse_time(str(time))
    except ValueError:
        return None
    return None if total == float("inf") else format_elapsed(total)


def format_elapsed(total: float) -> str:
    """Format a time as squeue(1): ``MM:SS``, ``H:MM:SS`` or ``D-HH:MM:SS``.

    Args:
        total: The time in s.
    """
    minutes, rest = divmod(int(total), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{rest:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_time(moment: float) -> str:
    """Format a time, given in s since 1970, as ISO 8601 in local time."""
    return datetime.fromtimestamp(moment).astimezone().isoformat(timespec="seconds")
