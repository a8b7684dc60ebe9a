"""Messages about long waits: a job that is pending, and a rank 0 that has not begun to train or print."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from hpcrun.jobs import heartbeats, records
from hpcrun.jobs.inferred_state import PROLOG, is_starting
from hpcrun.jobs.progress_text import format_progress
from hpcrun.watch.format import format_duration
from hpcrun.why.signatures import describe_reason

if TYPE_CHECKING:
    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.states import State

REMINDER_SECONDS = 60.0
"""How often the reason for which a job is pending is printed again."""

FIRST_MESSAGE_SECONDS, MESSAGE_INTERVAL_SECONDS = 2.0, 10.0
"""When the start of rank 0 is reported for the first time, and how often after that."""

LOOK_SECONDS = 1.0
"""The interval in which the files of a starting job are read."""

CLOCK_SECONDS = 2.0
"""By how much the clocks of hosts may differ."""

_FIRST_LINE = re.compile(r"(\[rank 0\] host [^\n]*\n?)?")
_PYTHON = re.compile(r"(.*/)?python[\d.]*")


class WaitMessages:
    """Messages for who waits for a job; each state and reason is reported once, and again every minute.

    Args:
        run: The run.
        can_cancel: Whether Ctrl+C cancels the job.
    """

    def __init__(self, run: Run, *, can_cancel: bool = False) -> None:
        self.run, self.can_cancel = run, can_cancel
        self._printed: dict[tuple[str, str], float] = {}  # time by state and reason
        self._running = False
        self._starting_since = 0.0
        self._next_look, self._next_progress = 0.0, time.monotonic() + FIRST_MESSAGE_SECONDS
        self.start = StartMessages()

    def describe_state(self, state: State) -> str:
        """Return the message about a state of the job; empty if there is nothing new to say."""
        now, starting = time.monotonic(), is_starting(self.run, state)
        self._running = state.name == "RUNNING" and not starting
        self._starting_since = (self._starting_since or now) if starting else 0.0
        name, reason = ("STARTING", PROLOG) if starting else (state.name, state.reason)
        key = (name, reason)
        is_brief = starting and now - self._starting_since < FIRST_MESSAGE_SECONDS
        is_printed = now - self._printed.get(key, -REMINDER_SECONDS) < REMINDER_SECONDS
        if self._running or state.finished or is_brief or is_printed:
            return ""
        still = "still " * (key in self._printed)
        self._printed[key] = now
        job_id, reason = self.run.job_id, describe_reason(reason)
        cancel = " (Ctrl+C cancels it)" if self.can_cancel and "(never starts" in reason else ""
        details = f"; hpcrun why {job_id} explains it" if still else ""
        return ": ".join(filter(None, [f"job {job_id} is {still}{name.lower()}", reason])) + cancel + details

    def describe_progress(self) -> str:
        """Return the message of a running job, every minute: how far its training is; empty in between."""
        now = time.monotonic()
        if not self._running or now < self._next_progress:
            return ""
        self._next_progress = now + REMINDER_SECONDS
        progress = format_progress(self.run.last_epoch(), self.run.heartbeat())
        return ": ".join(filter(None, [f"job {self.run.job_id} runs", progress]))

    def describe_start(self) -> str:
        """Return the message about the start of rank 0; empty if there is nothing new to say."""
        if not self._running or (now := time.monotonic()) < self._next_look:
            return ""
        self._next_look = now + LOOK_SECONDS
        return self.start.describe(find_start(self.run))


class StartMessages:
    """Messages about a start that takes long: the first one after 2 s, then one every 10 s."""

    def __init__(self) -> None:
        self._next = FIRST_MESSAGE_SECONDS
        self._last = ""

    def describe(self, start: tuple[str, float] | None) -> str:
        """Return the message about what `find_start` found; empty if there is nothing new to say."""
        if start is None:
            return ""
        what, seconds = start
        if what != self._last:
            self._last, self._next = what, FIRST_MESSAGE_SECONDS
        if seconds < self._next:
            return ""
        self._next = seconds + MESSAGE_INTERVAL_SECONDS
        return format_start(start)


def find_start(run: Run) -> tuple[str, float] | None:
    """Return what rank 0 does before it trains or prints, and since how many seconds; None if it does or is unknown."""
    log, starts = run.directory / "logs/rank-0.log", run.directory / "starts.jsonl"
    try:
        rank_started, script_started = log.stat().st_mtime, starts.stat().st_mtime
    except OSError:
        return None
    heartbeat = heartbeats.read_heartbeat(run.directory, 0)
    now = time.time()
    if heartbeat and heartbeat.time > script_started - CLOCK_SECONDS:
        seconds = heartbeat.activity_seconds + now - heartbeat.time
        return (f"rank 0 {heartbeat.activity}", seconds) if heartbeat.activity else None
    argv = run.spec.argv
    if argv and _PYTHON.fullmatch(argv[0]) and _FIRST_LINE.fullmatch(records.read_tail(log, 1024)):
        return "rank 0 starts Python and has printed nothing yet", now - rank_started
    return None


def format_start(start: tuple[str, float]) -> str:
    """Format what `find_start` found: ``rank 0 imports TensorFlow, 20 s so far``."""
    return f"{start[0]}, {format_duration(max(0.0, start[1]))} so far"
