"""Whether what a job's programs find is what the site file says; for this host and for nodes alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcrun.cuda import xla_flags
from hpcrun.doctor import login_host
from hpcrun.doctor.discover_mpi import parse_mpi_library
from hpcrun.doctor.installed_software import LAUNCHER_NAMES
from hpcrun.finding import error, ok, warning
from hpcrun.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.finding import Finding
    from hpcrun.sites.model import Site

MIN_OPEN_FILES = 1024
"""Of open files, which frameworks with many data files need."""

BACKENDS = ("tensorflow", "tensorflow-cpu", "torch", "jax")


def check_modules(site: Site, facts: dict[str, Any]) -> Iterator[Finding]:
    """Tell which modules are loaded; that one could not be has ended the script before."""
    if site.modules.load or site.modules.purge:
        yield ok("modules", facts["modules"])


def check_python(_site: Site, facts: dict[str, Any]) -> Iterator[Finding]:
    """Look at the jobs' Python, its hpcrun and what it trains with."""
    yield ok("Python", facts["Python"])
    if facts["hpcrun"] != __version__:
        fix = f"install hpcrun {__version__} in the environment of the jobs, or that version here"
        yield warning("hpcrun", f"{facts['hpcrun']} in the jobs' Python, {__version__} here", fix)
    else:
        yield ok("hpcrun", f"{__version__}, here and in the jobs' Python")
    found = [f"{name} {facts[name]}" for name in ("keras", *BACKENDS, "mpi4py") if name in facts]
    missing = [name for name in ("keras", "mpi4py") if name not in facts]
    missing += [] if any(name in facts for name in BACKENDS) else ["tensorflow (or jax, or torch)"]
    if missing:
        fix = "pip install 'hpcrun-slurm[train-gpu]' (without GPUs: [train-cpu]) there, for Keras"
        yield warning("packages", f"not in the jobs' Python: {', '.join(missing)}", fix)
    else:
        yield ok("packages", ", ".join(found))


def check_mpi_library(site: Site, facts: dict[str, Any]) -> Iterator[Finding]:
    """Look whether the library that mpi4py loads is the one that the site file names."""
    library, failure = facts["MPI library"], facts["MPI failure"]
    if "mpi4py" not in facts:
        return
    kind, _ = parse_mpi_library(library)
    if failure:
        fix = "install an MPI for it (pip install mpich), or load the module that it was built with: modules.load"
        yield error("MPI library", f"mpi4py cannot load it: {failure}", fix)
    elif not kind:
        yield warning("MPI library", f"{library}: none that hpcrun knows", "mpi.library is the one that it is like")
    elif kind != site.mpi.library and (kind, site.mpi.library) != ("mpich", "parastation"):  # which is made of it
        fix = f'set mpi.library = "{kind}", or load the module of the other one: modules.load'
        yield error("MPI library", f'{library}, and the site file has mpi.library = "{site.mpi.library}"', fix)
    else:
        yield ok("MPI library", library)


def check_launcher(site: Site, facts: dict[str, Any]) -> Iterator[Finding]:
    """Look whether the launcher is there, and of the right MPI."""
    found = facts.get(site.launcher_name)
    if found is None:  # none is needed, or the site file describes one that hosts do not look for
        return
    right = LAUNCHER_NAMES.get(site.mpi.library, "")
    if not found:
        fix = "load the module that has it (modules.load), add its folder to prepend_path.PATH, or change launcher"
        yield error("launcher", f"{site.launcher_name} is not on the job's PATH", fix)
    elif site.launcher_name != "srun" and "(" in found and "()" not in found and right not in found:
        fix = f"the first on PATH must be {right}'s: see modules.load and prepend_path.PATH, or mpi.library"
        yield error("launcher", f"{site.launcher_name} is {found}, and mpi.library is {site.mpi.library}", fix)
    else:
        yield ok("launcher", found.removesuffix(" ()"))


def check_cuda(site: Site, facts: dict[str, Any]) -> Iterator[Finding]:
    """Look for what XLA compiles with, where there is a GPU, or the site file says where it is."""
    if facts["GPUs"] == "none" and not (site.cuda.libdevice or site.cuda.data_dir):
        return
    missing = [name for name in ("libdevice", "ptxas") if not facts[name]]
    if missing:
        fix = "load a CUDA module, pip install 'hpcrun-slurm[train-gpu]', or set cuda.data_dir or cuda.libdevice"
        level = error if facts["GPUs"] != "none" else warning
        named = xla_flags.parse_data_dir(facts["XLA_FLAGS"])
        where = f"{named}, which XLA_FLAGS name" if named else "any of the usual places (hpcrun cuda lists them)"
        yield level("XLA", f"{' and '.join(missing)}: not in {where}", fix)
    else:
        yield ok("XLA", f"{facts['libdevice']}, {facts['ptxas']}")


def check_ulimits(_site: Site, facts: dict[str, Any]) -> Iterator[Finding]:
    """Look whether programs may open as many files as they will, and give InfiniBand the memory it wants."""
    files, locked = facts["limit of open files"], facts["limit of locked memory"]
    words = [f"{name.removeprefix('limit of ')} {facts[name]}" for name in facts if name.startswith("limit of ")]
    well = True
    if files.isdigit() and int(files) < MIN_OPEN_FILES:
        well = False
        fix = f'setup = ["ulimit -n {MIN_OPEN_FILES}"] in the site file, where the hard limit allows it'
        yield warning("limits of the shell", f"open files: {files}", fix)
    if facts["InfiniBand"] and locked != "unlimited":
        well = False
        fix = 'setup = ["ulimit -l unlimited"] in the site file, or the administrators (PropagateResourceLimitsExcept)'
        found = f"locked memory: {locked}, and there is InfiniBand ({facts['InfiniBand']}), which wants it unlimited"
        yield warning("limits of the shell", found, fix)
    if well:
        yield ok("limits of the shell", ", ".join(words))


def check_clock(_site: Site, facts: dict[str, Any]) -> Iterator[Finding]:
    """Look at a node's clock; that of this host is told with the run root."""
    if "clock skew" in facts:
        yield login_host.clock_finding(facts["clock skew"], facts["host"])
