"""Job states of all schedulers by Slurm's names, and the plain names of these states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError, closest_match
from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from hpcrun.jobs.run_files import ExitRecord

STATE_CODES = {
    "BF": "BOOT_FAIL", "CA": "CANCELLED", "CD": "COMPLETED", "CF": "CONFIGURING", "CG": "COMPLETING", "DL": "DEADLINE",
    "F": "FAILED", "NF": "NODE_FAIL", "OOM": "OUT_OF_MEMORY", "PD": "PENDING", "PR": "PREEMPTED", "R": "RUNNING",
    "RD": "RESV_DEL_HOLD", "RF": "REQUEUE_FED", "RH": "REQUEUE_HOLD", "RQ": "REQUEUED", "RS": "RESIZING",
    "RV": "REVOKED", "SI": "SIGNALING", "SE": "SPECIAL_EXIT", "SO": "STAGE_OUT", "ST": "STOPPED", "S": "SUSPENDED",
    "TO": "TIMEOUT",
}  # fmt: skip
"""Slurm's short and long names of the states (squeue(1), JOB STATE CODES)."""

PLAIN_NAMES = {
    "CONFIGURING": "starting", "COMPLETING": "ending", "NODE_FAIL": "node failed", "BOOT_FAIL": "node did not boot",
    "TIMEOUT": "out of time", "DEADLINE": "missed its deadline", "REQUEUE_HOLD": "held", "SPECIAL_EXIT": "held",
}  # fmt: skip
"""Plain names of states for which Slurm's name in lower case would not be clear."""

_SYNONYMS = {
    "COMPLETED": "done finished success succeeded successful ok complete",
    "FAILED": "error errored failure crashed broken",
    "PENDING": "queued waiting idle submitted q",
    "RUNNING": "active started run",
    "CANCELLED": "killed stopped aborted canceled",
    "TIMEOUT": "timelimit expired",
}
"""Words that users type for job states, by Slurm's name of the state."""

UNKNOWN_JOB_REASON = "Slurm does not know this job (any more)"
"""Beginning of the reason of a job in state UNKNOWN, if Slurm answers but does not know the job."""

CANCELLED_WHILE_PENDING = "cancelled while pending"
"""The reason shown for a job that was cancelled before its script started."""

UNFINISHED_STATES = frozenset({
    "PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED",
    "RESIZING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "PREEMPTED", "UNKNOWN", "READY",
})  # fmt: skip
"""States (squeue(1), JOB STATE CODES) that are not final."""


@frozen
class State:
    """The state of a job, as reported by its scheduler.

    Attributes:
        name: Slurm's name of the state, such as RUNNING.
        reason: The reason why the job is pending or has ended, if known.
        nodes: The nodes, as the scheduler writes them.
        elapsed: Run time so far, as the scheduler writes it.
        limit: The time limit, as the scheduler writes it.
        recorded: Whether the state comes from the job's own files.
    """

    name: str
    reason: str = ""
    nodes: str = ""
    elapsed: str = ""
    limit: str = ""
    recorded: bool = False

    @property
    def lost(self) -> bool:
        """Whether the scheduler answered, but does not know the job."""
        return self.name == "UNKNOWN" and self.reason.startswith(UNKNOWN_JOB_REASON)

    @property
    def finished(self) -> bool:
        """Whether the state is final."""
        return self.name not in UNFINISHED_STATES


def describe_state(name: str) -> str:
    """Return a state's plain name: ``out of memory`` for ``OUT_OF_MEMORY``."""
    return PLAIN_NAMES.get(name, name.lower().replace("_", " "))


def parse_states(text: str) -> frozenset[str]:
    """Parse a list of states into Slurm's names.

    Args:
        text: Slurm's long or compact state names, or the plain names of ``hpcrun status``; case is ignored:
            ``RUNNING,pd,out of time``.

    Raises:
        HpcrunError: The list contains a name that is not a job state.
    """
    names = {*STATE_CODES.values(), "UNKNOWN", UNSUBMITTED.name}
    states_by_word = {spelling: {name} for name in names for spelling in (name, name.replace("_", " "))}
    states_by_word |= {state_code: {name} for state_code, name in STATE_CODES.items()}
    for name in names:
        states_by_word.setdefault(describe_state(name).upper(), set()).add(name)
    selected: set[str] = set()
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word.upper() not in states_by_word:
            suggestion = next((name for name, words in _SYNONYMS.items() if word.lower() in words.split()), None)
            suggestion = suggestion or closest_match(word.upper(), list(states_by_word))
            hint = (
                f"did you mean {suggestion}?"
                if suggestion
                else "Slurm's names, such as PENDING, RUNNING, FAILED, or PD, R, F"
            )
            raise HpcrunError(f"{word!r} is not a job state", hint=hint)
        selected |= states_by_word[word.upper()]
    if not selected:
        raise HpcrunError("--state is empty", hint="for example --state PENDING,RUNNING")
    return frozenset(selected)


UNSUBMITTED = State("NOT SUBMITTED", "hpcrun was interrupted, or got no answer, and knows of no job")
"""The state of a run without a job id, if the reason is not recorded."""


def state_from_record(record: ExitRecord) -> State:
    """Return the state that a job's exit record implies."""
    name = "CANCELLED" if record.stopped else "COMPLETED" if record.exit_code == 0 else "FAILED"
    start_time = int(record.started)
    minutes, seconds = divmod(max(int(record.ended or start_time) - start_time, 0), 60)
    return State(name, record.reason, record.host, f"{minutes}:{seconds:02}")
