"""The specification of a job, from which the script is rendered; ``job.json`` contains it."""

from __future__ import annotations

from dataclasses import asdict, field, replace
from math import inf
from typing import TYPE_CHECKING, Any, Literal

from hpcrun.frozen import frozen
from hpcrun.gpus import requests_gpus
from hpcrun.job_options import OPTION_NAMES, JobOptions
from hpcrun.resources import parse_time
from hpcrun.scheduler import find_scheduler
from hpcrun.staging import name_copies

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.resources import Resources
    from hpcrun.sites.site_model import ResolvedSite
    from hpcrun.sites.software_tables import Container


@frozen
class Task:
    """One task of a sweep.

    Attributes:
        values: The names and values of the swept options.
        argv: The command line of one rank.
    """

    values: tuple[tuple[str, str], ...]
    argv: tuple[str, ...]


@frozen
class JobSpec(JobOptions):
    """The validated specification of a job: its options, with the site's defaults, and the following attributes.

    Attributes:
        name: The job's name.
        version: The version of hpcrun.
        site: The site, resolved for the job.
        scheduler: The name of the scheduler that runs the script; local for bash on this host (also in an allocation).
        launcher: The name of the launcher that starts the ranks.
        transport: How the launcher starts ranks on the nodes: by Slurm (slurm), over ssh (ssh), or on this host only
            (host).
        resources: The complete resources.
        argv: The command line of one rank; empty for a sweep, whose tasks have separate command lines.
        python: The Python interpreter, in which hpcrun is installed.
        container: The container in which ranks run; None if there is none.
        directory: The directory in which the job was submitted, and in which the ranks start.
        run_dir: The run directory.
        template_folders: Folders with job script templates, highest layer first.
        hostfile: The hostfile with the nodes; None if the scheduler's environment variables name the nodes.
        environment: The variables of -x, in order; hpcrun does not expand their values.
        snapshot: The folder of which the job runs a copy; None if it runs the original code.
        tasks: The tasks of a sweep.
        values: The names and values of the swept options, in the record of one task.
        trains_separate_models: Whether each rank would train a separate model, because the script names no library
            that lets ranks communicate.
        secrets: The secrets for the placeholders ``<secret 1>`` and so on; see `hpcrun.secrets`.
    """

    name: str
    version: str
    site: ResolvedSite
    scheduler: str
    launcher: str
    transport: Literal["slurm", "ssh", "host"]
    resources: Resources
    argv: tuple[str, ...]
    python: str
    directory: Path
    run_dir: Path
    template_folders: tuple[Path, ...]
    container: Container | None = None
    hostfile: Path | None = None
    environment: tuple[tuple[str, str], ...] = ()
    snapshot: Path | None = None
    tasks: tuple[Task, ...] = ()
    values: tuple[tuple[str, str], ...] = ()
    trains_separate_models: bool = False
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def has_gpus(self) -> bool:
        """Whether the job's ranks get GPUs, including GPUs from raw sbatch options such as --gres."""
        uses_sbatch = find_scheduler(self.scheduler).uses_slurm
        raw_options = (*self.site.sbatch, *self.resources.sbatch) if uses_sbatch else ()
        return not self.no_gpu and (self.resources.gpus > 0 or requests_gpus(raw_options))

    @property
    def gpus_per_rank(self) -> int:
        """The number of GPUs for each rank."""
        gpus = self.resources.gpus
        return max(gpus // (self.resources.ntasks_per_node or 1), 1) if gpus else 0

    @property
    def visible_gpus(self) -> int:
        """The number of GPUs that each rank sees."""
        return self.resources.gpus if self.gpus_visible == "node" else self.gpus_per_rank

    @property
    def time_limit_seconds(self) -> int | None:
        """The time limit in seconds; None if there is none."""
        limit = parse_time(self.resources.time) if self.resources.time else inf
        return None if limit == inf else int(limit)

    @property
    def staged(self) -> dict[str, str]:
        """The paths that each node copies to its local disk, with the names of the copies."""
        return name_copies(self)

    def task_spec(self, task_number: int) -> JobSpec:
        """Return the specification of one task of a sweep; its run directory is in the directory of the sweep.

        Args:
            task_number: The task's number, from 0 on.
        """
        task, directory = self.tasks[task_number], self.run_dir / f"{self.run_dir.name}.{task_number}"
        return replace(self, argv=task.argv, values=task.values, run_dir=directory, tasks=(), max_parallel=None)

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``job.json``, without secrets."""
        content = asdict(replace(self, secrets=()))
        options = {name: content.pop(name) for name in OPTION_NAMES}
        return {**content, "site": asdict(self.site.declared), "resources": self.resources.explicit(), **options}
