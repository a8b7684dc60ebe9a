"""What starts the ranks: a module for each launcher, which other packages add by an entry point. No I/O here."""

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
GROUP = "hpcrun.launchers"

HOSTFILE = "$HPCRUN_RUN_DIR/hostfile"
"""The hostfile, as bash expands it within double quotes."""


def list_names() -> list[str]:
    """Return the names of all launchers: hpcrun's own, then those of installed packages."""
    return [*BUILT_IN, *sorted(entry_points(group=GROUP).names - set(BUILT_IN))]


def require_launcher(name: str) -> str:
    """Return the name of a launcher, having checked that there is one.

    Raises:
        ValueError: There is none; names those that there are.
    """
    if name not in BUILT_IN and name not in (known := list_names()):
        like = closest_match(name, known)
        meant = f"did you mean {like}? " if like else ""
        raise ValueError(f'unknown launcher; {meant}known here: {", ".join(known)}, or launcher.command = "..."')
    return name


def load_launcher(name: str) -> Launcher:
    """Return the launcher of a name.

    Raises:
        HpcrunError: There is none, or the package that has it cannot be imported.
    """
    if name in BUILT_IN:
        own: Launcher = import_module(f"hpcrun.launchers.{name}").LAUNCHER
        return own
    for entry in entry_points(group=GROUP, name=name):
        try:
            found = entry.load()
        except Exception as error:
            what = f"launcher {name}: {entry.value} cannot be imported: {error}"
            raise HpcrunError(what, hint=f"reinstall or remove the package {entry.dist and entry.dist.name}") from error
        if isinstance(found, Launcher) and found.name == name:
            return found
        what = f"launcher {name}: {entry.value} is not an hpcrun.launchers.base.Launcher of that name"
        raise HpcrunError(what, hint=f"correct the entry point of the package {entry.dist and entry.dist.name}")
    raise HpcrunError(f"there is no launcher {name!r}", hint=f"one of {', '.join(list_names())}")


def find_launcher(spec: JobSpec) -> Launcher:
    """Return the launcher of a job."""
    custom = spec.site.custom_launcher
    return custom if custom and custom.name == spec.launcher else load_launcher(spec.launcher)


def mpi_launcher(mpi: Mpi) -> str:
    """Return the launcher that a site's MPI library has for nodes reached over ssh, or for this machine alone."""
    return "mpirun" if mpi.library.startswith("openmpi") else "mpiexec"


def build_launch_command(spec: JobSpec) -> list[str]:
    """Return the launch line's words, up to the program; none where there is nothing to launch with.

    All are literal but `HOSTFILE`.
    """
    words = find_launcher(spec).command(spec, HOSTFILE)
    return [*words, *spec.site.launcher_args] if words else []


def choose_cpu_bind(spec: JobSpec) -> str | None:
    """Return what each rank is bound to, ``cores`` or ``sockets``; None where nothing is, or the launcher does it."""
    words = build_launch_command(spec)
    own = any(re.match(r"--?(cpu[-_]bind|bind-to|map-by|cpus-per-rank)\b", word) for word in spec.site.launcher_args)
    own = own or any(word.startswith("--cpu-bind=") for word in words)
    return None if own or spec.cpu_bind == "none" or spec.resources.ranks == 1 else spec.cpu_bind
