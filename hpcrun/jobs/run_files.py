"""What the files of a run directory say, a class for each kind of file; ``job.json`` is in `hpcrun.jobs.job_record`.

`hpcrun.jobs.records` reads and checks them: a file must have the fields without a default, and each value must be of
its field's type, see `hpcrun.jobs.kinds`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.kinds import JobId, Object, ProcessStart, Said, Time


@dataclass(frozen=True)
class Submission:
    """``submitted.json``.

    Attributes:
        job_id: The scheduler's job id.
        submitted: When it was submitted.
        host: The host that it was submitted on.
        start_time: Of a job of this machine when its script's process began, in clock ticks since the machine did; None
            where it had ended before anybody looked. False: it is no job of this machine.
        allocation: The id of Slurm's job in whose allocation a job of this machine was started.
        slurm_conf: What SLURM_CONF was.
        command: The words of sbatch.
    """

    job_id: JobId
    submitted: Time
    host: str
    start_time: ProcessStart = False
    allocation: str | None = None
    slurm_conf: str = ""
    command: Sequence[str] = ()


NEVER = Submission("", 0, "")
"""Of a run that has no job."""


@dataclass(frozen=True)
class Refusal:
    """``refused.json``.

    Attributes:
        reason: Why there is no job.
        time: Since when that is certain.
    """

    reason: str
    time: Time


@dataclass(frozen=True)
class ExitRecord:
    """``exit.json``.

    Attributes:
        exit_code: The exit code.
        reason: How the job ended.
        started: When its script began.
        ended: When it ended; None while ranks are being stopped, and for good where that was cut short.
        requeued: Whether it went back to the queue.
        host: The host that its script ran on.
        job_id: Its id.
    """

    exit_code: int
    reason: str
    started: Time
    ended: Time | None
    requeued: bool = False
    host: str = ""
    job_id: str = ""

    @property
    def seconds(self) -> float:
        """How long it ran; 0 where it has not ended."""
        return (self.ended or self.started) - self.started

    @property
    def stopped(self) -> bool:
        """Whether a signal ended the job: a scheduler that sent it may start the job again."""
        return self.reason.startswith("stopped by")

    @property
    def may_go_on(self) -> bool:
        """Whether Slurm may start the job again: it stopped it, or killed its ranks first, as when a node failed."""
        return self.stopped or self.exit_code in {137, 143}


@dataclass(frozen=True)
class Start:
    """A line of ``starts.jsonl``.

    Attributes:
        job_id: The job's id.
        slurm_job: Slurm's own for a task of an array.
        host: The host that its script ran on.
        nodes: The nodes, as Slurm writes them.
        started: When its script began.
        requeued: Whether it had requeued itself before.
    """

    job_id: str = ""
    slurm_job: str = ""
    host: str = ""
    nodes: str = ""
    started: Time = 0
    requeued: bool = False


@dataclass(frozen=True)
class CleanRecord:
    """``cleaned.json``: nothing was left of the job.

    Attributes:
        time: When.
        nodes: On which nodes.
        run_dirs: By which paths of the run directory its processes were looked for; empty: by the only one.
    """

    time: Time
    nodes: Sequence[str]
    run_dirs: Sequence[str] = ()


@dataclass(frozen=True)
class Epoch:
    """A line of ``metrics.jsonl``: what rank 0 wrote at the end of an epoch, or the user's program at any time.

    Attributes:
        fit: Which ``fit`` of its script it was in, from 0.
        epoch: The epoch, from 1.
        epochs: How many there were to be.
        seconds: How long it took.
        images_per_second: The rate, of all ranks.
        said: All that the line says, as it says it: Keras's figures, too.
    """

    fit: float | None = None
    epoch: float | None = None
    epochs: float | None = None
    seconds: float | None = None
    images_per_second: float | None = None
    said: Said = field(default_factory=dict)

    @property
    def figures(self) -> dict[str, object]:
        """What was measured, by its name: all that has no field of its own."""
        return {name: value for name, value in self.said.items() if name not in _OWN}


@dataclass(frozen=True)
class Result:
    """``result.json``, whose figures are named by the program that wrote it.

    Attributes:
        versions: Versions of the libraries that it used.
        said: All that was written down.
    """

    versions: Object | None = None
    said: Said = field(default_factory=dict)


@dataclass(frozen=True)
class SiteOrigins:
    """``provenance/site.json``.

    Attributes:
        values: Each value that a site file set, and the file and line (``from``), by its key.
    """

    values: Object = field(default_factory=dict)


@dataclass(frozen=True)
class GitRecord:
    """``provenance/git.json``: the repository of the user's code; empty where it lies in none.

    Attributes:
        notes: What could not be found out, and why.
        changed: Files that differ from the commit; None where nobody knows.
        said: All that was written down.
    """

    notes: Sequence[str] = ()
    changed: Sequence[Any] | None = None
    said: Said = field(default_factory=dict)


_OWN = {one.name for one in fields(Epoch)} - {"said"}
