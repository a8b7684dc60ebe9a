"""Progress and rate of training, and times, as text."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from hpcrun.resources import parse_time

if TYPE_CHECKING:
    from hpcrun.jobs.heartbeats import Heartbeat
    from hpcrun.jobs.run_files import Epoch

STOPPED_EARLY = "stopped early"
"""Text that marks a training that ended before its last epoch, such as by Keras's EarlyStopping."""


def format_progress(last_epoch: Epoch, heartbeat: Heartbeat | None = None, *, is_completed: bool = False) -> str:
    """Format the progress and speed of training: ``epoch 3/90, step 40/390, 812 images/s``.

    Args:
        last_epoch: The last line of ``metrics.jsonl``.
        heartbeat: Rank 0's heartbeat, if it is newer than ``metrics.jsonl``.
        is_completed: Whether the job has ended successfully, so that no further epoch is expected.
    """
    epoch, epochs, rate = last_epoch.epoch, last_epoch.epochs, last_epoch.images_per_second
    step_text = ""
    if heartbeat and heartbeat.epoch:
        epoch, epochs, rate = heartbeat.epoch, heartbeat.epochs, heartbeat.images_per_second or rate
        step_text = f"step {heartbeat.step}" + (f"/{heartbeat.steps}" if heartbeat.steps else "")
    parts = []
    if epoch is not None:
        parts.append(f"epoch {epoch}" + (f"/{epochs}" if epochs else ""))
        if epochs and epoch < epochs and (is_completed or (heartbeat and heartbeat.phase == "trained")):
            parts.append(STOPPED_EARLY)
    if step_text:
        parts.append(step_text)
    if rate and rate > 0:
        parts.append(format_rate(rate))
    return ", ".join(parts)


def format_rate(rate: float) -> str:
    """Format a training rate.

    Args:
        rate: The rate in images per second.
    """
    return f"{rate:{',.0f' if rate >= 10 else '.2g'}} images/s"


def normalize_time(time: object) -> str | None:
    """Convert a time to the format of squeue(1); return None for an invalid or unlimited time."""
    try:
        seconds = parse_time(str(time))
    except ValueError:
        return None
    return None if seconds == float("inf") else format_elapsed(seconds)


def format_elapsed(total_seconds: float) -> str:
    """Format a duration as squeue(1) does: ``MM:SS``, ``H:MM:SS`` or ``D-HH:MM:SS``.

    Args:
        total_seconds: The time in s.
    """
    minutes, seconds = divmod(int(total_seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{seconds:02}"
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def format_time(timestamp: float) -> str:
    """Format a time in s since 1970 as ISO 8601 in local time."""
    return datetime.fromtimestamp(timestamp).astimezone().isoformat(timespec="seconds")
