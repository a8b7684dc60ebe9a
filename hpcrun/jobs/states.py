"""Job states: Slurm's names for all schedulers, and what they mean in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError, closest_match

if TYPE_CHECKING:
    from hpcrun.jobs.run_files import ExitRecord

CODES = {
    "BF": "BOOT_FAIL", "CA": "CANCELLED", "CD": "COMPLETED", "CF": "CONFIGURING", "CG": "COMPLETING", "DL": "DEADLINE",
    "F": "FAILED", "NF": "NODE_FAIL", "OOM": "OUT_OF_MEMORY", "PD": "PENDING", "PR": "PREEMPTED", "R": "RUNNING",
    "RD": "RESV_DEL_HOLD", "RF": "REQUEUE_FED", "RH": "REQUEUE_HOLD", "RQ": "REQUEUED", "RS": "RESIZING",
    "RV": "REVOKED", "SI": "SIGNALING", "SE": "SPECIAL_EXIT", "SO": "STAGE_OUT", "ST": "STOPPED", "S": "SUSPENDED",
    "TO": "TIMEOUT",
}  # fmt: skip
"""Slurm's short and long names of the states (squeue(1), JOB STATE CODES)."""

WORDS = {
    "CONFIGURING": "starting", "COMPLETING": "ending", "NODE_FAIL": "node failed", "BOOT_FAIL": "node did not boot",
    "TIMEOUT": "out of time", "DEADLINE": "missed its deadline", "REQUEUE_HOLD": "held", "SPECIAL_EXIT": "held",
}  # fmt: skip
"""States whose own names, in lower case, are not plain enough."""

FORGOTTEN = "Slurm does not know this job (any more)"
"""How the reason of an UNKNOWN job begins where Slurm did answer."""

UNFINISHED = frozenset({
    "PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED",
    "RESIZING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "PREEMPTED", "UNKNOWN", "READY",
})  # fmt: skip
"""States (squeue(1), JOB STATE CODES) from which a job may still go on."""


@dataclass(frozen=True)
class State:
    """What a scheduler says of one job.

    Attributes:
        name: Slurm's name of the state, such as RUNNING.
        reason: Why it is so, where known: a pending reason, or how the job ended.
        nodes: The nodes, as the scheduler writes them.
        elapsed: Run time so far, as the scheduler writes it.
        limit: The time limit, as the scheduler writes it.
        recorded: Whether only what the job left behind says so.
    """

    name: str
    reason: str = ""
    nodes: str = ""
    elapsed: str = ""
    limit: str = ""
    recorded: bool = False

    @property
    def lost(self) -> bool:
        """Whether its scheduler answers, and does not know the job."""
        return self.name == "UNKNOWN" and self.reason.startswith(FORGOTTEN)

    @property
    def finished(self) -> bool:
        """Whether the job has ended for good."""
        return self.name not in UNFINISHED


def plain(name: str) -> str:
    """Return a state in plain words: ``OUT_OF_MEMORY`` is out of memory."""
    return WORDS.get(name, name.lower().replace("_", " "))


def named(text: str) -> frozenset[str]:
    """Return Slurm's names of states.

    Args:
        text: Slurm's names or short names, or what ``hpcrun status`` shows, in any case: ``RUNNING,pd,out of time``.

    Raises:
        HpcrunError: There is no such state.
    """
    names = {*CODES.values(), "UNKNOWN", UNSUBMITTED.name}
    known = {spelled: {name} for name in names for spelled in (name, name.replace("_", " "))}
    known |= {short: {name} for short, name in CODES.items()}
    for name in names:
        known.setdefault(plain(name).upper(), set()).add(name)
    found: set[str] = set()
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word.upper() not in known:
            like = closest_match(word.upper(), list(known))
            hint = f"did you mean {like}?" if like else "Slurm's names, such as PENDING, RUNNING, FAILED, or PD, R, F"
            raise HpcrunError(f"{word!r} is no state of a job", hint=hint)
        found |= known[word.upper()]
    if not found:
        raise HpcrunError("--state names no state", hint="for example --state PENDING,RUNNING")
    return frozenset(found)


UNSUBMITTED = State("NOT SUBMITTED", "hpcrun was interrupted, or got no answer, and there is no job that it knows of")
"""The state of a run directory without a job, where no reason was written down."""


def from_record(record: ExitRecord) -> State:
    """Return the state that a job's own exit record tells."""
    name = "CANCELLED" if record.stopped else "COMPLETED" if record.exit_code == 0 else "FAILED"
    begin = int(record.started)
    minutes, seconds = divmod(max(int(record.ended or begin) - begin, 0), 60)
    return State(name, record.reason, record.host, f"{minutes}:{seconds:02}")
