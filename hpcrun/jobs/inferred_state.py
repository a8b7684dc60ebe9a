"""The final state of a job that Slurm has purged, inferred from its exit record, its starts and its log.

Without accounting, Slurm purges a job minutes after its end (slurm.conf(5), MinJobAge).
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from hpcrun.jobs import safe_reading
from hpcrun.jobs.states import CANCELLED_WHILE_PENDING, State, state_from_record
from hpcrun.resources import parse_time

if TYPE_CHECKING:
    from hpcrun.jobs.run_files import ExitRecord
    from hpcrun.jobs.runs import Run

_CANCELLED_LINE = re.compile(
    r"^slurmstepd\S*: error: \*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT (?P<time>\S+) DUE TO (?P<why>[A-Z ]+)",
    re.MULTILINE,
)
_OUT_OF_MEMORY = re.compile(r"^slurmstepd\S*: error: .*\boom[-_]kill\b", re.MULTILINE)
_TIME_LIMIT = re.compile(r"\bTimeLimit=([\d:-]+)")
_STATE_OF_CAUSE = {"TIME LIMIT": "TIMEOUT", "NODE FAILURE": "NODE_FAIL", "PREEMPTION": "CANCELLED"}
"""Job states by the cause of the cancellation that slurmstepd logs."""

PROLOG_REASON = "Slurm prepares its nodes (Prolog)"
"""The reason shown for a job that Slurm has started, but whose script has not started yet."""

EPILOG_REASON = "its ranks have ended; Slurm still cleans up its nodes (Epilog)"
"""The reason shown for a job whose script has ended, but that Slurm does not report as ended yet."""

_FILES_OF_STARTED_JOBS = ("starts.jsonl", "exit.json", "metrics.jsonl", "heartbeats")

CLOCK_TOLERANCE_SECONDS = 60
"""Upper bound for the clock skew between hosts, and for the delay of Slurm's time limit checks."""


def is_starting(run: Run, state: State) -> bool:
    """Return whether a job is RUNNING, but its script has not started: Slurm runs its Prolog first.

    Args:
        run: The run.
        state: The job's state in Slurm.
    """
    if state.name != "RUNNING" or not (run.job_id and run.scheduler.uses_slurm):
        return False
    return not (run.log_job_id or any((run.directory / name).exists() for name in _FILES_OF_STARTED_JOBS))


def is_in_epilog(run: Run, state: State | None) -> bool:
    """Return whether a job is COMPLETING, although its script has ended: Slurm runs its Epilog first.

    Args:
        run: The run.
        state: The job's state in Slurm.
    """
    record = run.end_record() if state and state.name == "COMPLETING" else None
    return bool(record and not record.requeued)


def infer_state(run: Run, record: ExitRecord | None) -> State | None:
    """Return the final state of a job; None if the run's files do not show that the job ended.

    Args:
        run: The run.
        record: The run's exit record; None if there is none.
    """
    starts, limit_seconds = run.starts(), _time_limit_seconds(run)
    if record is None and not starts and run.submission.cancelled:
        return State("CANCELLED", CANCELLED_WHILE_PENDING, recorded=True)
    start_time = record.started if record else starts[-1].started if starts else 0.0
    state = state_from_record(record) if record else None
    if state is None or state.name != "COMPLETED":
        log = run.log("err")
        log_text = safe_reading.read_tail(log) if log else ""
        name = _find_state_in_log(log_text, start_time)
        if record is None or state is None:
            if not (name and starts):
                return None
            state = State(name, name.lower().replace("_", " "))
        elif not name and state.name == "FAILED" and "slurmstepd" in log_text and _OUT_OF_MEMORY.search(log_text):
            name = "OUT_OF_MEMORY"
        elif not name and record.ended and record.stopped and record.ended - start_time >= limit_seconds:
            name = "TIMEOUT"
        state = replace(state, name=name or state.name)
    nodes = [start.nodes for start in starts if start.nodes]
    limit_minutes = "" if limit_seconds == float("inf") else f"{limit_seconds / 60:.0f}"
    return replace(state, nodes=nodes[-1] if nodes else state.nodes, limit=limit_minutes, recorded=True)


def _find_state_in_log(log_text: str, start_time: float) -> str | None:
    """Return the state that slurmstepd logged after the job started, if any."""
    for match in reversed(list(_CANCELLED_LINE.finditer(log_text)) if "slurmstepd" in log_text else []):
        name = next((name for cause, name in _STATE_OF_CAUSE.items() if match["why"].startswith(cause)), None)
        try:
            logged_time = datetime.fromisoformat(match["time"]).timestamp()
        except ValueError:
            continue
        if name and logged_time >= start_time - CLOCK_TOLERANCE_SECONDS:
            return name
    return None


def _time_limit_seconds(run: Run) -> float:
    """Return the time limit in s: Slurm's at the start of the job, else the requested limit; infinity if unlimited."""
    match = _TIME_LIMIT.search(safe_reading.read_tail(run.directory / "provenance/slurm.txt"))
    try:
        return float(parse_time(match[1] if match else str(run.spec.resources.time)))
    except ValueError:
        return float("inf")
