"""Messages about long waits: for a pending job, and for rank 0 until it trains or prints."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from hpcrun.jobs import heartbeats, safe_reading
from hpcrun.jobs.inferred_state import PROLOG_REASON, is_starting
from hpcrun.jobs.progress_text import format_progress
from hpcrun.watch.format import format_duration
from hpcrun.why.signatures import describe_reason

if TYPE_CHECKING:
    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.states import State

REMINDER_SECONDS = 60.0
"""The interval in s after which the reason of a pending job is printed again."""

FIRST_MESSAGE_SECONDS, MESSAGE_INTERVAL_SECONDS = 2.0, 10.0
"""The time in s after which the start of rank 0 is first reported, and the interval of further reports."""

READ_INTERVAL_SECONDS = 1.0
"""The interval in s at which the files of a starting job are read."""

CLOCK_TOLERANCE_SECONDS = 2.0
"""Tolerated clock difference between hosts, in s."""

_FIRST_LINE = re.compile(r"(\[rank 0\] host [^\n]*\n?)?")
_PYTHON = re.compile(r"(.*/)?python[\d.]*")


class WaitMessages:
    """Messages for a user who waits for a job; each state and reason is reported once, and again every minute.

    Args:
        run: The run.
        can_cancel: Whether Ctrl+C cancels the job.
    """

    def __init__(self, run: Run, *, can_cancel: bool = False) -> None:
        self.run, self.can_cancel = run, can_cancel
        self._message_times: dict[tuple[str, str], float] = {}  # time of the last message about each state and reason
        self._running = False
        self._starting_since = 0.0
        self._next_read, self._next_progress = 0.0, time.monotonic() + FIRST_MESSAGE_SECONDS
        self.start = StartMessages()

    def describe_state(self, state: State) -> str:
        """Return the message about a state of the job; empty if it was reported recently."""
        now, in_prolog = time.monotonic(), is_starting(self.run, state)
        self._running = state.name == "RUNNING" and not in_prolog
        self._starting_since = (self._starting_since or now) if in_prolog else 0.0
        name, reason = ("STARTING", PROLOG_REASON) if in_prolog else (state.name, state.reason)
        key = (name, reason)
        is_brief = in_prolog and now - self._starting_since < FIRST_MESSAGE_SECONDS
        is_recent = now - self._message_times.get(key, -REMINDER_SECONDS) < REMINDER_SECONDS
        if self._running or state.finished or is_brief or is_recent:
            return ""
        still_text = "still " * (key in self._message_times)
        self._message_times[key] = now
        job_id, reason = self.run.job_id, describe_reason(reason)
        cancel_text = " (Ctrl+C cancels it)" if self.can_cancel and "(never starts" in reason else ""
        why_hint = f"; hpcrun why {job_id} explains it" if still_text else ""
        return ": ".join(filter(None, [f"job {job_id} is {still_text}{name.lower()}", reason])) + cancel_text + why_hint

    def describe_progress(self) -> str:
        """Return the message about the progress of a running job; empty if a message was printed in the last minute."""
        now = time.monotonic()
        if not self._running or now < self._next_progress:
            return ""
        self._next_progress = now + REMINDER_SECONDS
        progress = format_progress(self.run.last_epoch(), self.run.heartbeat())
        return ": ".join(filter(None, [f"job {self.run.job_id} runs", progress]))

    def describe_start(self) -> str:
        """Return the message about the start of rank 0; empty if no message is due."""
        if not self._running or (now := time.monotonic()) < self._next_read:
            return ""
        self._next_read = now + READ_INTERVAL_SECONDS
        return self.start.describe(find_start(self.run))


class StartMessages:
    """Messages about a slow start of rank 0: the first message after 2 s, further messages every 10 s."""

    def __init__(self) -> None:
        self._next_seconds = FIRST_MESSAGE_SECONDS
        self._last_activity = ""

    def describe(self, start: tuple[str, float] | None) -> str:
        """Return the message about a result of `find_start`; empty if no message is due."""
        if start is None:
            return ""
        activity, seconds = start
        if activity != self._last_activity:
            self._last_activity, self._next_seconds = activity, FIRST_MESSAGE_SECONDS
        if seconds < self._next_seconds:
            return ""
        self._next_seconds = seconds + MESSAGE_INTERVAL_SECONDS
        return format_start(start)


def find_start(run: Run) -> tuple[str, float] | None:
    """Return the activity of rank 0 before it trains or prints, and its duration in s; None if there is none."""
    log, starts = run.directory / "logs/rank-0.log", run.directory / "starts.jsonl"
    try:
        rank_started, script_started = log.stat().st_mtime, starts.stat().st_mtime
    except OSError:
        return None
    heartbeat = heartbeats.read_heartbeat(run.directory, 0)
    now = time.time()
    if heartbeat and heartbeat.time > script_started - CLOCK_TOLERANCE_SECONDS:
        seconds = heartbeat.activity_seconds + now - heartbeat.time
        return (f"rank 0 {heartbeat.activity}", seconds) if heartbeat.activity else None
    argv = run.spec.argv
    if 0 in run.completed_ranks():
        return None
    if argv and _PYTHON.fullmatch(argv[0]) and _FIRST_LINE.fullmatch(safe_reading.read_tail(log, 1024)):
        return "rank 0 starts Python and has printed nothing yet", now - rank_started
    return None


def format_start(start: tuple[str, float]) -> str:
    """Format a result of `find_start`: ``rank 0 imports TensorFlow, 20 s so far``."""
    return f"{start[0]}, {format_duration(max(0.0, start[1]))} so far"
