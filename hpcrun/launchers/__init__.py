"""Launchers of MPI ranks. Each launcher has a module; other packages can add launchers by an entry point."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hpcrun.launchers.base import Launcher
from hpcrun.plugins import Registry

if TYPE_CHECKING:
    from hpcrun.sites.site_model import Site
    from hpcrun.spec import JobSpec

REGISTRY: Registry[Launcher] = Registry(
    "launcher", Launcher, ("srun", "mpirun", "mpiexec", "ibrun", "none"), ', or launcher.command = "..."'
)
list_names, require_launcher, load_launcher = REGISTRY.list_names, REGISTRY.require, REGISTRY.load

_CYCLIC_ARGUMENTS = re.compile(
    r"(^| )(--?map-by[= ]node\b|--?bynode\b|-rr\b|-(ppn|perhost) 1\b|(--distribution[= ]|-m *)cyclic\b)", re.MULTILINE
)
"""Arguments of Open MPI, Hydra and srun that place ranks on the nodes in turn (cyclic)."""

HOSTFILE = "$HPCRUN_RUN_DIR/hostfile"
"""The path of the hostfile, as a bash expression for use in double quotes."""


def find_launcher(spec: JobSpec) -> Launcher:
    """Return the launcher of a job: a launcher that the site file describes, a built-in launcher, or a plugin."""
    custom = spec.site.custom_launcher
    return custom if custom and custom.name == spec.launcher else load_launcher(spec.launcher)


def site_launcher(site: Site) -> Launcher:
    """Return the launcher of a site."""
    return site.custom_launcher or load_launcher(site.launcher_name)


def mpi_launcher(library: str) -> str:
    """Return the launcher of an MPI library (``mpi.library``) for jobs over ssh or on this host only."""
    return next((name for name in REGISTRY.built_in if load_launcher(name).belongs_to(library)), "mpiexec")


def build_launch_command(spec: JobSpec) -> list[str]:
    """Return the words of the launch command before the program; an empty list without a launcher.

    bash expands only `HOSTFILE`; all other words are literal.
    """
    words = find_launcher(spec).command(spec, HOSTFILE)
    return [*words, *spec.site.launcher_args] if words else []


def distributes_cyclically(spec: JobSpec) -> bool:
    """Return whether the launcher distributes ranks over the nodes cyclically, instead of in blocks."""
    uses_slurm = find_launcher(spec).uses_slurm
    sbatch = (*spec.site.sbatch, *spec.resources.sbatch) if uses_slurm else ()  # srun reads SLURM_DISTRIBUTION
    return any(_CYCLIC_ARGUMENTS.search(words) for words in (" ".join(spec.site.launcher_args), *sbatch))


def choose_cpu_bind(spec: JobSpec) -> str | None:
    """Return the CPU binding of ranks, ``cores`` or ``sockets``; None if hpcrun does not bind the ranks."""
    words = build_launch_command(spec)
    launcher_binds = any(
        re.match(r"--?(cpu[-_]bind|bind-to|map-by|cpus-per-rank)\b", word) for word in spec.site.launcher_args
    )
    launcher_binds = launcher_binds or any(word.startswith("--cpu-bind=") for word in words)
    return None if launcher_binds or spec.cpu_bind == "none" or spec.resources.ranks == 1 else spec.cpu_bind
