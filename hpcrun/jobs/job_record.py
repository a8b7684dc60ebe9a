"""The content of ``job.json``, as `hpcrun.jobs.safe_reading` reads and validates it; see `hpcrun.jobs.run_files`."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, cast

from hpcrun.frozen import frozen
from hpcrun.job_options import JobOptions
from hpcrun.jobs.record_validation import parse_record
from hpcrun.resources import Resources

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hpcrun.jobs.record_validation import AllValues, Pairs, PluginName, Scalar, Seconds
    from hpcrun.sites.loader import LoadedSite


@frozen
class RecordedRestart:
    """``restart`` of a site in ``job.json``.

    Attributes:
        cancel_seconds: Seconds for ranks to write a checkpoint.
        requeue: Whether a job requeues itself; otherwise it submits a new job.
    """

    cancel_seconds: Seconds = 30
    requeue: bool = True


@frozen
class RecordedMpi:
    """``mpi`` of a site in ``job.json``.

    Attributes:
        library: The MPI library.
        type: The MPI plugin of srun (``--mpi``).
    """

    library: str | None = "mpich"
    type: str | None = None


@frozen
class RecordedContainer:
    """A container in ``job.json``.

    Attributes:
        image: The container image.
        python: The Python interpreter in the image.
    """

    image: str | None = None
    python: str | None = None


@frozen
class RecordedSite:
    """``site`` of ``job.json``, reduced to the keys that commands use; another version may have written it.

    Attributes:
        name: The site's name.
        slurm_conf: Path of the site's slurm.conf.
        poll_seconds: Minimum seconds between two queries to the scheduler.
        restart: The site's settings for restarts.
        mpi: The site's MPI settings.
        container: The container in which jobs run.
        local_scratch: Node-local folders in which jobs may leave files.
        sbatch_forbidden: sbatch options that the site forbids.
        all_values: The whole JSON object.
    """

    name: str = ""
    slurm_conf: str | None = None
    poll_seconds: Seconds = 2
    restart: RecordedRestart = RecordedRestart()
    mpi: RecordedMpi = RecordedMpi()
    container: RecordedContainer | None = None
    local_scratch: Sequence[str] = ()
    sbatch_forbidden: Sequence[str] = ()
    all_values: AllValues = field(default_factory=dict)

    @property
    def traps_stop_signal(self) -> bool:
        """Whether the job script traps the stop signal, which would kill scripts of old versions of hpcrun."""
        return "restart" in self.all_values

    def load(self) -> LoadedSite:
        """Return the recorded site, independent of the current site files.

        Raises:
            HpcrunError: A different version of hpcrun wrote the record, with site keys that this version does not have.
        """
        from hpcrun.sites import loader

        return loader.site_from_record(dict(self.all_values))


@frozen
class RecordedResources:
    """``resources`` of ``job.json``, reduced to the keys that commands use; see `hpcrun.resources.Resources`.

    Attributes:
        nodes: The number of nodes.
        ntasks: The number of ranks.
        ntasks_per_node: Ranks per node.
        gpus_per_node: GPUs per node.
        time: The time limit, as for sbatch's ``--time``.
        partition: The partition.
        qos: The QoS.
        sbatch: Raw options of sbatch.
        mem: Memory per node, as for sbatch's ``--mem``.
        mem_per_cpu: Memory per core.
        mem_per_gpu: Memory per GPU.
        account: The account.
        constraint: Required node features, as for sbatch's ``--constraint``.
        all_values: The whole JSON object.
    """

    nodes: int | None = None
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    gpus_per_node: Scalar = None
    time: Scalar = None
    partition: str | None = None
    qos: str | None = None
    sbatch: Sequence[str] = ()
    mem: Scalar = None
    mem_per_cpu: Scalar = None
    mem_per_gpu: Scalar = None
    account: str | None = None
    constraint: str | None = None
    all_values: AllValues = field(default_factory=dict)

    def to_resources(self) -> Resources:
        """Return the resources with all options that were recorded.

        Raises:
            ValueError: A different version recorded an option that this version does not have, or a value is invalid.
        """
        if unknown_options := sorted(self.all_values.keys() - Resources.__dataclass_fields__.keys()):
            raise ValueError(f"unknown option {unknown_options[0]!r}")
        return Resources(**cast("dict[str, Any]", self.all_values))


@frozen
class RecordedTask:
    """One task in ``tasks`` of ``job.json``; see `hpcrun.spec.Task`.

    Attributes:
        values: The task's swept parameters and their values.
        argv: The command line of one rank.
    """

    values: Pairs
    argv: Sequence[str]


@frozen
class JobRecord(JobOptions):
    """``job.json``: a `hpcrun.spec.JobSpec` as this or another version of hpcrun recorded it; all keys are optional."""

    name: str = ""
    version: str = ""
    scheduler: PluginName = ""
    launcher: str = ""
    argv: Sequence[str] = ()
    python: str = ""
    directory: str = ""
    run_dir: str = ""
    environment: Pairs = ()
    tasks: Sequence[RecordedTask] = ()
    values: Pairs = ()
    container: RecordedContainer | None = None
    snapshot: str | None = None
    site: RecordedSite = RecordedSite()
    resources: RecordedResources = RecordedResources()
    transport: str = "slurm"
    all_values: AllValues = field(default_factory=dict)

    @property
    def is_recorded(self) -> bool:
        """Whether the file exists and is valid; if not, all values are defaults."""
        return bool(self.all_values)

    @property
    def is_repeatable(self) -> bool:
        """Whether the record has all keys that a resubmission of the job needs."""
        return bool(self.argv or self.tasks) and {"name", "site", "resources", "directory"} <= self.all_values.keys()

    def with_replaced_path(self, old_path: Path, new_path: Path) -> JobRecord:
        """Return the record with `old_path` replaced by `new_path` in all values."""
        return parse_record(JobRecord, _replace_text(self.all_values, str(old_path), str(new_path)))


def _replace_text(value: Any, old_text: str, new_text: str) -> Any:
    if isinstance(value, dict):
        return {key: _replace_text(item, old_text, new_text) for key, item in value.items()}
    if isinstance(value, list):
        return [_replace_text(item, old_text, new_text) for item in value]
    return value.replace(old_text, new_text) if isinstance(value, str) else value
