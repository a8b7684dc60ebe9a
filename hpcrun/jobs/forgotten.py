"""How a job ended that its Slurm does not remember, from what it left behind: its record, its starts and its log.

Without accounting Slurm forgets a job minutes after its end (slurm.conf(5), MinJobAge).
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from hpcrun.jobs import records
from hpcrun.jobs.states import State, from_record
from hpcrun.resources import parse_time

if TYPE_CHECKING:
    from hpcrun.jobs.run_files import ExitRecord
    from hpcrun.jobs.runs import Run

_ENDED = re.compile(
    r"^slurmstepd\S*: error: \*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT (?P<time>\S+) DUE TO (?P<why>[A-Z ]+)",
    re.MULTILINE,
)
_OUT_OF_MEMORY = re.compile(r"^slurmstepd\S*: error: .*\boom[-_]kill\b", re.MULTILINE)
_LIMIT = re.compile(r"\bTimeLimit=([\d:-]+)")
_NAMES = {"TIME LIMIT": "TIMEOUT", "NODE FAILURE": "NODE_FAIL", "PREEMPTION": "CANCELLED"}
"""What slurmstepd says, and the state in which such a job ends."""

SLACK_SECONDS = 60
"""Hosts' clocks differ by less, and so does the moment at which Slurm looks for jobs that are out of time."""


def state(run: Run, record: ExitRecord | None) -> State | None:
    """Return the state in which a job ended; None where what it left does not say that it did.

    Args:
        run: The run.
        record: What its exit record says; None where it left none.
    """
    log, nodes = run.log("err"), run.nodes()
    text = records.tail(log) if log else ""
    last = run.last_start()
    begun = record.started if record else last.started if last else 0.0
    name = _named(text, begun)
    limit = _limit(run)
    if record is None:
        if not (name and last):
            return None
        told = State(name, name.lower().replace("_", " "))
    else:
        told = from_record(record)
        late = record.ended and record.stopped and record.ended - begun >= limit
        if not name and told.name == "FAILED" and _OUT_OF_MEMORY.search(text):
            name = "OUT_OF_MEMORY"
        told = replace(told, name=name or ("TIMEOUT" if late else told.name)) if told.name != "COMPLETED" else told
    shown = "" if limit == float("inf") else f"{limit / 60:.0f}"
    return replace(told, nodes=nodes[-1] if nodes else told.nodes, limit=shown, recorded=True)


def _named(text: str, begun: float) -> str | None:
    """Return the state that slurmstepd told in a log of the job that began then."""
    for match in reversed(list(_ENDED.finditer(text))):
        name = next((name for why, name in _NAMES.items() if match["why"].startswith(why)), None)
        try:
            told = datetime.fromisoformat(match["time"]).timestamp()
        except ValueError:
            continue
        if name and told >= begun - SLACK_SECONDS:
            return name
    return None


def _limit(run: Run) -> float:
    """Return the time limit in s, as Slurm told it when the job began, else as it was asked for; infinite for none."""
    told = _LIMIT.search(records.tail(run.directory / "provenance/slurm.txt"))
    try:
        return float(parse_time(told[1] if told else str(run.spec.resources.time)))
    except ValueError:
        return float("inf")
