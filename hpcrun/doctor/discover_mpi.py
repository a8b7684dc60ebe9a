"""Discovery of MPI library, launcher, modules and CUDA."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.cuda.locations import LIBDEVICE, SYSTEM_ROOTS, find_locations
from hpcrun.doctor.discover_slurm import parse_mpi_types
from hpcrun.doctor.mpi_library import parse_mpi_library
from hpcrun.launchers import mpi_launcher
from hpcrun.sites.lint.mpi import MPI_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpcrun.schedulers.command import CommandResult


@dataclass(frozen=True)
class DiscoveredMpi:
    """The MPI library and launcher of jobs.

    Attributes:
        library: Its name in a site file.
        library_from: How it was found.
        launcher: The launcher.
        launcher_from: The reason for this launcher.
        type: srun's --mpi value; None if srun is not the launcher or needs no --mpi.
        type_from: The reason for this type.
        wheel: Whether it is the wheel that hpcrun-slurm[train] installs.
    """

    library: str
    library_from: str
    launcher: str
    launcher_from: str
    type: str | None
    type_from: str
    wheel: bool


def choose_mpi(
    answers: Mapping[str, CommandResult], environ: Mapping[str, str], *, slurm: bool = True
) -> DiscoveredMpi:
    """Choose MPI library, launcher and srun's --mpi value.

    Args:
        answers: The outputs of the commands of `hpcrun.doctor.discover_commands`.
        environ: The environment.
        slurm: Whether srun is available.
    """
    library, source, wheel = _identify_library(answers)
    own = mpi_launcher(library)
    listed = answers["mpi types"].combined if slurm else ""
    kind = next((one for one in MPI_TYPES.get(library, ()) if one in parse_mpi_types(listed)), None)
    if not slurm:
        return DiscoveredMpi(library, source, own, f"{library}'s launcher", None, "", wheel)
    if library == "parastation":
        return DiscoveredMpi(library, source, "srun", "ParaStation MPI's own plugin in Slurm", None, "", wheel)
    if library == "intel" and not environ.get("I_MPI_PMI_LIBRARY"):
        why = "under srun, Intel MPI needs I_MPI_PMI_LIBRARY, which is not set"
        return DiscoveredMpi(library, source, own, why, None, "", wheel)
    if kind:
        return DiscoveredMpi(
            library, source, "srun", "srun supports a matching --mpi type", kind, "srun --mpi=list", wheel
        )
    why = f"srun --mpi=list has none of {', '.join(MPI_TYPES.get(library, ()))}, which {library} needs"
    return DiscoveredMpi(library, source, own, why, None, "", wheel)


def _identify_library(answers: Mapping[str, CommandResult]) -> tuple[str, str, bool]:
    """Return the MPI library, how it was found, and whether it is the wheel; this Python's before one on PATH."""
    for place, source in (("python", "this Python's mpi4py"), ("mpirun", "mpirun"), ("mpiexec", "mpiexec")):
        library, line = parse_mpi_library(answers[place].combined)
        if library:
            wheel = re.search(r"^wheel: (.*)", answers[place].text, re.MULTILINE)
            said = f"the wheel {wheel[1]}" if wheel else " ".join(line.split())[:60]
            return library, f"{source}: {said}", bool(wheel) and library == "mpich"
    return "mpich", "no MPI was found; pip install 'hpcrun-slurm[train]' installs this one", True


def identify_module_system(environ: Mapping[str, str]) -> str | None:
    """Return the name of the module system, or None without one."""
    if version := environ.get("LMOD_VERSION"):
        return f"Lmod {version}"
    return "Environment Modules" if environ.get("MODULESHOME") else None


def find_cuda_root(environ: Mapping[str, str], system: Sequence[str] = SYSTEM_ROOTS) -> tuple[str, Path] | None:
    """Return the first CUDA root that jobs would search, as a value for a site file and as a folder, or None.

    Args:
        environ: The environment.
        system: System folders to search.
    """
    shared = {name: value for name, value in environ.items() if name != "CONDA_PREFIX"}  # which belongs to the user
    for place in find_locations(shared, (), Path("/"), system):
        if place.libdevice == place.path / LIBDEVICE:
            named = environ.get(place.why) == str(place.path)
            return f"${{{place.why}}}" if named else str(place.path), place.path
    return None
