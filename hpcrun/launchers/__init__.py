"""Launchers of MPI ranks, one module each; other packages add launchers by an entry point."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError, closest_match
from hpcrun.launchers.base import Launcher

if TYPE_CHECKING:
    from hpcrun.sites.tables import Mpi
    from hpcrun.spec import JobSpec

BUILT_IN = ("srun", "mpirun", "mpiexec", "ibrun", "none")
ENTRY_POINT_GROUP = "hpcrun.launchers"

HOSTFILE = "$HPCRUN_RUN_DIR/hostfile"
"""The hostfile, as bash expands it within double quotes."""


def list_names() -> list[str]:
    """Return the names of all launchers: hpcrun's own, then those of installed packages."""
    return [*BUILT_IN, *sorted(entry_points(group=ENTRY_POINT_GROUP).names - set(BUILT_IN))]


def require_launcher(name: str) -> str:
    """Check that a launcher exists, and return its name.

    Raises:
        ValueError: No launcher has this name; the message lists the known ones.
    """
    if name not in BUILT_IN and name not in (known := list_names()):
        like = closest_match(name, known)
        suggestion = f"did you mean {like}? " if like else ""
        raise ValueError(f'unknown launcher; {suggestion}known here: {", ".join(known)}, or launcher.command = "..."')
    return name


def load_launcher(name: str) -> Launcher:
    """Load the launcher of a name.

    Raises:
        HpcrunError: No launcher has this name, or its package cannot be imported.
    """
    if name in BUILT_IN:
        built_in: Launcher = import_module(f"hpcrun.launchers.{name}").LAUNCHER
        return built_in
    for entry in entry_points(group=ENTRY_POINT_GROUP, name=name):
        try:
            found = entry.load()
        except Exception as error:
            what = f"launcher {name}: {entry.value} cannot be imported: {error}"
            raise HpcrunError(what, hint=f"reinstall or remove the package {entry.dist and entry.dist.name}") from error
        if isinstance(found, Launcher) and found.name == name:
            return found
        what = f"launcher {name}: {entry.value} is not an hpcrun.launchers.base.Launcher of that name"
        raise HpcrunError(what, hint=f"correct the entry point of the package {entry.dist and entry.dist.name}")
    raise HpcrunError(f"unknown launcher {name!r}", hint=f"one of {', '.join(list_names())}")


def find_launcher(spec: JobSpec) -> Launcher:
    """Return the launcher of a job: the site's custom one, a built-in one or a plugin."""
    custom = spec.site.custom_launcher
    return custom if custom and custom.name == spec.launcher else load_launcher(spec.launcher)


def mpi_launcher(mpi: Mpi) -> str:
    """Return the launcher of a site's MPI library, for nodes over ssh or for this host alone."""
    return "mpirun" if mpi.library.startswith("openmpi") else "mpiexec"


def build_launch_command(spec: JobSpec) -> list[str]:
    """Return the words of the launch line before the program; an empty list without a launcher.

    bash expands `HOSTFILE` only; all other words are literal.
    """
    words = find_launcher(spec).command(spec, HOSTFILE)
    return [*words, *spec.site.launcher_args] if words else []


def choose_cpu_bind(spec: JobSpec) -> str | None:
    """Return what each rank is bound to, ``cores`` or ``sockets``; None without binding, or if the launcher binds."""
    words = build_launch_command(spec)
    launcher_binds = any(
        re.match(r"--?(cpu[-_]bind|bind-to|map-by|cpus-per-rank)\b", word) for word in spec.site.launcher_args
    )
    launcher_binds = launcher_binds or any(word.startswith("--cpu-bind=") for word in words)
    return None if launcher_binds or spec.cpu_bind == "none" or spec.resources.ranks == 1 else spec.cpu_bind
