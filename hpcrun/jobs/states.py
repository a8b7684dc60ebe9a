"""Job states: Slurm's names for all schedulers, and what they mean in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
    """

    name: str
    reason: str = ""
    nodes: str = ""
    elapsed: str = ""

    @property
    def finished(self) -> bool:
        """Whether the job has ended for good."""
        return self.name not in UNFINISHED


UNSUBMITTED = State("NOT SUBMITTED", "the scheduler refused it, or hpcrun was interrupted")
"""The state of a run directory without a job."""


def stopped(ended: dict[str, Any]) -> bool:
    """Return whether a signal ended the job: a scheduler that sent it may start the job again."""
    return str(ended["reason"]).startswith("stopped by")


def from_record(ended: dict[str, Any]) -> State:
    """Return the state that a job's own exit record tells."""
    code, reason = int(ended["exit_code"]), str(ended["reason"])
    name = "CANCELLED" if stopped(ended) else "COMPLETED" if code == 0 else "FAILED"
    begin = int(ended["started"])
    minutes, seconds = divmod(max(int(ended["ended"] or begin) - begin, 0), 60)
    return State(name, reason, str(ended.get("host", "")), f"{minutes}:{seconds:02}")
