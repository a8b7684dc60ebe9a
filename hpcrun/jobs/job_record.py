"""What ``job.json`` says; `hpcrun.jobs.records` reads and checks it, see `hpcrun.jobs.run_files`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.kinds import Object, Pairs, Plain, Said, SchedulerName, Seconds


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
    transport: str = "slurm"
    no_gpu: bool = False
    output_on_all_ranks: bool = False
    log_level: str = "WARNING"
    fusion_threshold_kb: int | None = None
    cpu_bind: str | None = None
    max_parallel: int | None = None
    said: Said = field(default_factory=dict)
