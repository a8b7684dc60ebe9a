"""Discovery of the MPI library, the launcher, the module system and CUDA."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.cuda.locations import LIBDEVICE, SYSTEM_ROOTS, find_locations
from hpcrun.doctor.discover_slurm import parse_mpi_types
from hpcrun.doctor.mpi_library import parse_mpi_library
from hpcrun.frozen import frozen
from hpcrun.launchers import mpi_launcher
from hpcrun.sites.lint.mpi import MPI_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpcrun.schedulers.command import CommandResult


@frozen
class DiscoveredMpi:
    """The MPI library and launcher of jobs.

    Attributes:
        library: The name of the library in a site file (``mpi.library``).
        library_from: The source of the library's name, as text.
        launcher: The launcher.
        launcher_from: The reason for this launcher.
        type: The value of srun's --mpi; None if srun is not the launcher or needs no --mpi.
        type_from: The reason for this type.
        wheel: Whether the library is the MPICH wheel that hpcrun-slurm[train] installs.
    """

    library: str
    library_from: str
    launcher: str
    launcher_from: str
    type: str | None
    type_from: str
    wheel: bool


def choose_mpi(
    results: Mapping[str, CommandResult], environ: Mapping[str, str], *, slurm: bool = True
) -> DiscoveredMpi:
    """Choose the MPI library, the launcher and the value of srun's --mpi.

    Args:
        results: The results of the commands in `hpcrun.doctor.discover_commands`, by name.
        environ: The environment.
        slurm: Whether srun is available.
    """
    library, source, wheel = _identify_library(results)
    own_launcher = mpi_launcher(library)
    type_list = results["mpi types"].combined_output if slurm else ""
    mpi_type = next((one for one in MPI_TYPES.get(library, ()) if one in parse_mpi_types(type_list)), None)
    if not slurm:
        return DiscoveredMpi(library, source, own_launcher, f"{library}'s launcher", None, "", wheel)
    if library == "parastation":
        return DiscoveredMpi(library, source, "srun", "ParaStation MPI's own plugin in Slurm", None, "", wheel)
    if library == "intel" and not environ.get("I_MPI_PMI_LIBRARY"):
        reason = "under srun, Intel MPI needs I_MPI_PMI_LIBRARY, which is not set"
        return DiscoveredMpi(library, source, own_launcher, reason, None, "", wheel)
    if mpi_type:
        return DiscoveredMpi(
            library, source, "srun", "srun supports a matching --mpi type", mpi_type, "srun --mpi=list", wheel
        )
    reason = f"srun --mpi=list has none of {', '.join(MPI_TYPES.get(library, ()))}, which {library} needs"
    return DiscoveredMpi(library, source, own_launcher, reason, None, "", wheel)


def _identify_library(results: Mapping[str, CommandResult]) -> tuple[str, str, bool]:
    """Return the MPI library of this Python, or else of PATH, its source, and whether it is the MPICH wheel."""
    for program, source in (("python", "this Python's mpi4py"), ("mpirun", "mpirun"), ("mpiexec", "mpiexec")):
        library, line = parse_mpi_library(results[program].combined_output)
        if library:
            wheel = re.search(r"^wheel: (.*)", results[program].text, re.MULTILINE)
            description = f"the wheel {wheel[1]}" if wheel else " ".join(line.split())[:60]
            return library, f"{source}: {description}", bool(wheel) and library == "mpich"
    return "mpich", "no MPI was found; pip install 'hpcrun-slurm[train]' installs this one", True


def identify_module_system(environ: Mapping[str, str]) -> str | None:
    """Return the name of the module system; None if there is none."""
    if version := environ.get("LMOD_VERSION"):
        return f"Lmod {version}"
    return "Environment Modules" if environ.get("MODULESHOME") else None


def find_cuda_root(environ: Mapping[str, str], system: Sequence[str] = SYSTEM_ROOTS) -> tuple[str, Path] | None:
    """Return the first CUDA root that jobs would search, as a value for a site file and as a path, or None.

    Args:
        environ: The environment.
        system: System folders to search.
    """
    shared_variables = {
        name: value for name, value in environ.items() if name != "CONDA_PREFIX"
    }  # CONDA_PREFIX names an environment of the user, not of the cluster
    for location in find_locations(shared_variables, (), Path("/"), system):
        if location.libdevice == location.path / LIBDEVICE:
            is_variable = environ.get(location.why) == str(location.path)
            return f"${{{location.why}}}" if is_variable else str(location.path), location.path
    return None
