"""The one object that rendering and submission see; ``job.json`` is its text."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - pydantic reads the annotations
from typing import Literal

from pydantic import BaseModel, ConfigDict

from hpcrun.resources import Resources  # noqa: TC001
from hpcrun.sites.model import LauncherName, Site  # noqa: TC001


class JobSpec(BaseModel):
    """Everything that a job script is made of: site, program, final resources, run directory."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    name: str
    """The job's name."""
    version: str
    """hpcrun's version."""
    site: Site
    """The site, merged and validated."""
    scheduler: Literal["slurm", "local"]
    """What runs the script: slurm, or local for bash on this machine (also inside an allocation)."""
    launcher: LauncherName
    """What starts the ranks."""
    reach: Literal["slurm", "ssh", "host"]
    """How the launcher reaches the nodes: through Slurm's allocation, over ssh, or there is only this host."""
    hostfile: Path | None = None
    """The hostfile that names the nodes; None where the environment of the job does."""
    resources: Resources
    """The final resources."""
    argv: tuple[str, ...]
    """The command line of one rank."""
    python: str
    """Python interpreter, with hpcrun installed."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables given with -x, in order, taken literally."""
    no_gpu: bool = False
    """Whether ranks must not see any GPU."""
    output_on_all_ranks: bool = False
    """Whether every rank's output goes to the job's log; else rank 0's only."""
    log_level: str = "WARNING"
    """Least severe messages that ranks log."""
    directory: Path
    """The directory the job was submitted from; ranks start there."""
    run_dir: Path
    """The run directory."""
    template_folders: tuple[Path, ...]
    """Folders with job script templates, highest layer first."""
