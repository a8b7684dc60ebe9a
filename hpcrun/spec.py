"""The one object that rendering and submission see; ``job.json`` is its text."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.resources import Resources
    from hpcrun.sites.model import LauncherName, Site


@dataclass(frozen=True)
class JobSpec:
    """Everything that a job script is made of; its parts were validated when they were made.

    Attributes:
        name: The job's name.
        version: hpcrun's version.
        site: The site, merged and validated.
        scheduler: What runs the script: slurm, or local for bash on this machine (also inside an allocation).
        launcher: What starts the ranks.
        reach: How the launcher reaches the nodes: through Slurm's allocation, over ssh, or there is only this host.
        resources: The final resources.
        argv: The command line of one rank.
        python: Python interpreter, with hpcrun installed.
        directory: The directory the job was submitted from; ranks start there.
        run_dir: The run directory.
        template_folders: Folders with job script templates, highest layer first.
        hostfile: The hostfile that names the nodes; None where the environment of the job does.
        environment: Variables given with -x, in order, taken literally.
        no_gpu: Whether ranks must not see any GPU.
        output_on_all_ranks: Whether every rank's output goes to the job's log; else rank 0's only.
        log_level: Least severe messages that ranks log.
        fusion_threshold_kb: Size in KB of the pieces that gradients are sent in; None for hpcrun.train's own.
    """

    name: str
    version: str
    site: Site
    scheduler: Literal["slurm", "local"]
    launcher: LauncherName
    reach: Literal["slurm", "ssh", "host"]
    resources: Resources
    argv: tuple[str, ...]
    python: str
    directory: Path
    run_dir: Path
    template_folders: tuple[Path, ...]
    hostfile: Path | None = None
    environment: tuple[tuple[str, str], ...] = ()
    no_gpu: bool = False
    output_on_all_ranks: bool = False
    log_level: str = "WARNING"
    fusion_threshold_kb: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``job.json``."""
        return {**asdict(self), "resources": self.resources.said()}
