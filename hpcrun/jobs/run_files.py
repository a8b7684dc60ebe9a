"""Record classes for the files of a run directory; ``job.json`` is in `hpcrun.jobs.job_record`.

`hpcrun.jobs.safe_reading` reads and validates them: fields without a default are required, and each value must have its
field's type, see `hpcrun.jobs.record_validation`.
"""

from __future__ import annotations

from dataclasses import field, fields
from typing import TYPE_CHECKING, NamedTuple

from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.record_validation import AllValues, JobId, JsonObject, ProcessStart, Time


@frozen
class Submission:
    """The submission of a job, ``submitted.json``.

    Attributes:
        job_id: The scheduler's job id.
        submitted: The time of the submission, in s since 1970.
        host: The host on which the job was submitted.
        start_time: For a local job, the start time of the script's process in clock ticks since boot, or None if the
            process had already ended; False for a Slurm job.
        allocation: The id of the Slurm job in whose allocation a local job was started.
        slurm_conf: SLURM_CONF in the environment of the submission.
        command: The sbatch command line.
        earlier_job_ids: The ids of the run's earlier jobs, if the run was resumed.
        cancelled: The time at which the job was cancelled before its script started, in s since 1970; None if it was
            not cancelled.
    """

    job_id: JobId
    submitted: Time
    host: str
    start_time: ProcessStart = False
    allocation: str | None = None
    slurm_conf: str = ""
    command: Sequence[str] = ()
    earlier_job_ids: Sequence[str] = ()
    cancelled: Time | None = None


NO_SUBMISSION = Submission("", 0, "")
"""The placeholder for a run without a job."""


@frozen
class Refusal:
    """A refused submission, ``refused.json``.

    Attributes:
        reason: The reason why the scheduler refused the job.
        time: The time at which the refusal was recorded.
    """

    reason: str
    time: Time


@frozen
class ExitRecord:
    """The exit record of a job, ``exit.json``.

    Attributes:
        exit_code: The exit code.
        reason: A text about how the job ended.
        started: The start time of the job script, in s since 1970.
        ended: The end time of the job, in s since 1970; None while its ranks are being stopped, or if stopping them was
            interrupted.
        requeued: Whether the job was requeued.
        host: The host on which the job script ran.
        job_id: The job's id.
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
        """The run time in s; 0 if the job has not ended."""
        return (self.ended or self.started) - self.started

    @property
    def stopped(self) -> bool:
        """Whether a signal ended the job; a scheduler that sent the signal may requeue the job."""
        return self.reason.startswith("stopped by")

    @property
    def may_restart(self) -> bool:
        """Whether Slurm may requeue the job: a signal stopped it or killed its ranks, such as after a node failure."""
        return self.stopped or self.exit_code in {137, 143}


@frozen
class Start:
    """A line of ``starts.jsonl``.

    Attributes:
        job_id: The job's id.
        slurm_job: SLURM_JOB_ID of the job; differs from `job_id` for a task of an array.
        host: The host on which the job script ran.
        nodes: The allocated nodes in Slurm's notation (``n[1-4]``).
        started: The start time of the job script, in s since 1970.
        requeued: Whether this is a start after the job requeued itself.
        more_memory: Whether this start requests more memory, because the job ran out of memory.
    """

    job_id: str = ""
    slurm_job: str = ""
    host: str = ""
    nodes: str = ""
    started: Time = 0
    requeued: bool = False
    more_memory: bool = False


@frozen
class CleanRecord:
    """The record of a complete cleanup, ``cleaned.json``.

    Attributes:
        time: The time at which the cleanup finished, in s since 1970.
        nodes: The nodes on which nothing of the job is left.
        run_dirs: The paths of the run directory by which the cleanup recognized the job's processes; empty in records
            of earlier versions.
    """

    time: Time
    nodes: Sequence[str]
    run_dirs: Sequence[str] = ()


@frozen
class Epoch:
    """A line of ``metrics.jsonl``, written by rank 0 at the end of an epoch, or by the user's program.

    Attributes:
        fit: Index of the ``fit`` call in the script, from 0.
        epoch: Number of the epoch, from 1.
        epochs: Total number of epochs.
        seconds: The duration of the epoch in s.
        images_per_second: Training rate of all ranks together.
        all_values: The whole JSON object, with Keras's metrics.
    """

    fit: float | None = None
    epoch: float | None = None
    epochs: float | None = None
    seconds: float | None = None
    images_per_second: float | None = None
    all_values: AllValues = field(default_factory=dict)

    @property
    def metrics(self) -> dict[str, object]:
        """The metrics by name: all values that have no field in this class."""
        return {name: value for name, value in self.all_values.items() if name not in _EPOCH_FIELDS}


@frozen
class Result:
    """The results in ``result.json``; the program that wrote the file chose their names.

    Attributes:
        versions: Versions of the libraries that the program used.
        all_values: The whole JSON object.
    """

    versions: JsonObject | None = None
    all_values: AllValues = field(default_factory=dict)


class SiteOrigin(NamedTuple):
    """A value that a site file set.

    Attributes:
        value: The value.
        place: Site file and line of the value; empty if unknown.
    """

    value: object
    place: str


@frozen
class SiteOrigins:
    """The origins of site values, ``provenance/site.json``.

    Attributes:
        values: Each value that a site file set, and the file and line (``from``), by its key.
    """

    values: JsonObject = field(default_factory=dict)

    @property
    def origins(self) -> dict[str, SiteOrigin]:
        """The valid values and their origins, by key."""
        return {
            key: SiteOrigin(entry.get("value"), str(entry.get("from") or ""))
            for key, entry in self.values.items()
            if isinstance(entry, dict)
        }


@frozen
class GitRecord:
    """The Git state of the user's code, ``provenance/git.json``; empty if there is no repository.

    Attributes:
        repository: The top folder of the repository.
        commit: The checked-out commit; None before the first commit.
        branch: The current branch; None if no branch is checked out.
        changed: Files that differ from the commit; None if unknown.
        untracked: Files that Git does not track; None if unknown.
        notes: Messages about missing information.
    """

    repository: str | None = None
    commit: str | None = None
    branch: str | None = None
    changed: Sequence[str] | None = None
    untracked: Sequence[str] | None = None
    notes: Sequence[str] = ()


_EPOCH_FIELDS = {one.name for one in fields(Epoch)} - {"all_values"}
