"""What the files of a run directory say, a class for each kind of file; `hpcrun.jobs.records` reads and checks them.

A field's type is what a file's value must be, see `hpcrun.jobs.kinds`. One without a default must be in the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.kinds import JobId, Object, Pairs, Plain, ProcessStart, Said, SchedulerName, Seconds, Time


@dataclass(frozen=True)
class RecordedRestart:
    """``restart`` of a site in ``job.json``.

    Attributes:
        cancel_seconds: How long ranks are given to write a checkpoint.
        requeue: Whether a job goes back to the queue as itself; else it submits another one.
    """

    cancel_seconds: Seconds = 30
    requeue: bool = True


@dataclass(frozen=True)
class RecordedMpi:
    """``mpi`` of a site in ``job.json``.

    Attributes:
        library: The MPI library.
        type: How srun starts its ranks.
    """

    library: str | None = "mpich"
    type: str | None = None


@dataclass(frozen=True)
class RecordedSite:
    """``site`` of ``job.json``, as far as commands look at it: it may be another version's, whose sites differ.

    Attributes:
        name: The site's name.
        slurm_conf: Its slurm.conf.
        poll_seconds: Fewest seconds between two questions to its scheduler.
        restart: How its jobs are restarted; `said` has no such key where an old version wrote this.
        mpi: Its MPI.
        container: The container that its jobs run in.
        environment: Variables that it sets.
        partitions: What partitions have of their own.
        qos: Likewise.
        local_scratch: Folders of its nodes that jobs leave files in.
        sbatch_forbidden: Options that sbatch does not take there.
        said: All that was written down.
    """

    name: str = ""
    slurm_conf: str | None = None
    poll_seconds: Seconds = 2
    restart: RecordedRestart = RecordedRestart()
    mpi: RecordedMpi = RecordedMpi()
    container: Object | None = None
    environment: Object = field(default_factory=dict)
    partitions: Object = field(default_factory=dict)
    qos: Object = field(default_factory=dict)
    local_scratch: Sequence[str] = ()
    sbatch_forbidden: Sequence[str] = ()
    said: Said = field(default_factory=dict)


@dataclass(frozen=True)
class RecordedResources:
    """``resources`` of ``job.json``, as far as commands look at them; see `hpcrun.resources.Resources`.

    Attributes:
        nodes: Nodes.
        ntasks: Ranks.
        ntasks_per_node: Ranks a node.
        gpus_per_node: GPUs a node.
        time: The time limit.
        partition: The partition.
        qos: The QoS.
        sbatch: Options that sbatch gets as they are.
        mem: Memory of a node.
        mem_per_cpu: Of a core.
        mem_per_gpu: Of a GPU.
        account: The account.
        said: All that was written down.
    """

    nodes: int | None = None
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    gpus_per_node: Plain = None
    time: Plain = None
    partition: str | None = None
    qos: str | None = None
    sbatch: Sequence[str] = ()
    mem: Plain = None
    mem_per_cpu: Plain = None
    mem_per_gpu: Plain = None
    account: str | None = None
    said: Said = field(default_factory=dict)


@dataclass(frozen=True)
class RecordedTask:
    """One of ``tasks`` of ``job.json``; see `hpcrun.spec.Task`.

    Attributes:
        values: Its values.
        argv: The command line of one rank.
    """

    values: Pairs
    argv: Sequence[str]


@dataclass(frozen=True)
class JobRecord:
    """``job.json``: a `hpcrun.spec.JobSpec` as it was written down, by this or another version; see there.

    Nothing of it need be there. `said` is empty where there is no such file, or it cannot be used.
    """

    name: str = ""
    version: str = ""
    scheduler: SchedulerName = ""
    launcher: str = ""
    argv: Sequence[str] = ()
    python: str = ""
    directory: str = ""
    run_dir: str = ""
    environment: Pairs = ()
    tasks: Sequence[RecordedTask] = ()
    values: Pairs = ()
    container: Object | None = None
    snapshot: str | None = None
    max_requeue: int | None = None
    site: RecordedSite = RecordedSite()
    resources: RecordedResources = RecordedResources()
    reach: str = "slurm"
    no_gpu: bool = False
    output_on_all_ranks: bool = False
    log_level: str = "WARNING"
    fusion_threshold_kb: int | None = None
    cpu_bind: str | None = None
    max_parallel: int | None = None
    said: Said = field(default_factory=dict)


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


_OWN = {one.name for one in fields(Epoch)} - {"said"}
