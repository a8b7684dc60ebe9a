"""The one object that rendering and submission see; ``job.json`` is its text."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from hpcrun.gpus import requests_gpus

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.resources import Resources
    from hpcrun.sites.model import ResolvedSite
    from hpcrun.sites.software_tables import Container


@dataclass(frozen=True)
class Task:
    """One task of a sweep.

    Attributes:
        values: Its values, by the names of what is swept.
        argv: The command line of one rank.
    """

    values: tuple[tuple[str, str], ...]
    argv: tuple[str, ...]


@dataclass(frozen=True)
class JobSpec:
    """Everything that a job script is made of; its parts were validated when they were made.

    Attributes:
        name: The job's name.
        version: hpcrun's version.
        site: The site, as the jobs of its partition and QoS find it.
        scheduler: What runs the script: slurm, or local for bash on this machine (also inside an allocation).
        launcher: What starts the ranks.
        transport: How the launcher reaches the nodes: through Slurm's allocation, over ssh, or there is only this host.
        resources: The final resources.
        argv: The command line of one rank; empty for a sweep, whose tasks have their own.
        python: Python interpreter, with hpcrun installed.
        container: The container that ranks run in; None where they run on the host.
        directory: The directory the job was submitted from; ranks start there.
        run_dir: The run directory.
        template_folders: Folders with job script templates, highest layer first.
        hostfile: The hostfile that names the nodes; None where the environment of the job does.
        environment: Variables given with -x, in order, taken literally.
        no_gpu: Whether ranks must not see any GPU.
        output_on_all_ranks: Whether every rank's output goes to the job's log; else rank 0's only.
        cpu_bind: What each rank is bound to: its share of the cores, or the sockets that this share lies on.
        log_level: Least severe messages that ranks log.
        fusion_threshold_kb: Size in KB of the pieces that gradients are sent in; None for hpcrun.train's own.
        snapshot: The folder whose copy in the run directory the job runs; None where it runs the code itself.
        tasks: The tasks of a sweep.
        max_parallel: How many tasks run at the same time; None for as many as the scheduler lets.
        values: In the record of one task of a sweep, its values.
        trains_alone: Whether its program trains, and names nothing through which its ranks would meet.
        max_requeue: How often the job goes back to the queue before its time limit, to go on from its checkpoint.
        secrets: What argv, environment and tasks have ``<secret 1>`` and so on for; see `hpcrun.secrets`.
    """

    name: str
    version: str
    site: ResolvedSite
    scheduler: Literal["slurm", "local"]
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
    no_gpu: bool = False
    output_on_all_ranks: bool = False
    log_level: str = "WARNING"
    cpu_bind: Literal["cores", "sockets", "none"] = "cores"
    fusion_threshold_kb: int | None = None
    snapshot: Path | None = None
    tasks: tuple[Task, ...] = ()
    max_parallel: int | None = None
    values: tuple[tuple[str, str], ...] = ()
    trains_alone: bool = False

    @property
    def has_gpus(self) -> bool:
        """Whether its ranks get GPUs: also those that options ask for which sbatch gets as they are."""
        raw = (*self.site.sbatch, *self.resources.sbatch) if self.scheduler == "slurm" else ()
        return not self.no_gpu and (self.resources.gpus > 0 or requests_gpus(raw))

    def for_task(self, number: int) -> JobSpec:
        """Return the job that one task of a sweep is; its run directory is in the sweep's.

        Args:
            number: Which task; the first is 0.
        """
        task, directory = self.tasks[number], self.run_dir / f"{self.run_dir.name}.{number}"
        return replace(self, argv=task.argv, values=task.values, run_dir=directory, tasks=(), max_parallel=None)

    max_requeue: int = 0
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``job.json``, which has no secrets."""
        content = asdict(replace(self, secrets=()))
        return {**content, "site": asdict(self.site.declared), "resources": self.resources.explicit()}
