"""Checks of a job's software environment against the site file, on this host and on nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun import launchers
from hpcrun.cuda import xla_flags
from hpcrun.doctor import login_host
from hpcrun.doctor.installed_software import LAUNCHER_NAMES
from hpcrun.doctor.mpi_library import parse_mpi_library
from hpcrun.finding import error, ok, warning
from hpcrun.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hpcrun.finding import Finding
    from hpcrun.sites.model import Site

MIN_OPEN_FILES = 1024
"""Minimum limit of open files, for frameworks with many data files."""

BACKENDS = ("tensorflow", "tensorflow-cpu", "torch", "jax")


def check_modules(site: Site, facts: Mapping[str, str]) -> Iterator[Finding]:
    """Report the loaded modules; a module that fails to load ends the script earlier."""
    if site.modules.load or site.modules.purge:
        yield ok("modules", facts["modules"])


def check_python(_site: Site, facts: Mapping[str, str]) -> Iterator[Finding]:
    """Check the jobs' Python, its hpcrun and its training packages."""
    yield ok("Python", facts["Python"])
    if facts["hpcrun"] != __version__:
        fix = f"install hpcrun {__version__} in the jobs' environment, or the jobs' version here"
        yield warning("hpcrun", f"{facts['hpcrun']} in the jobs' Python, {__version__} here", fix)
    else:
        yield ok("hpcrun", f"{__version__}, here and in the jobs' Python")
    found = [f"{name} {facts[name]}" for name in ("keras", *BACKENDS, "mpi4py") if name in facts]
    missing = [name for name in ("keras", "mpi4py") if name not in facts]
    missing += [] if any(name in facts for name in BACKENDS) else ["tensorflow (or jax, or torch)"]
    if missing:
        fix = "pip install 'hpcrun-slurm[train-gpu]' (without GPUs: [train-cpu]) in that environment"
        yield warning("packages", f"not in the jobs' Python: {', '.join(missing)}", fix)
    else:
        yield ok("packages", ", ".join(found))


def check_mpi_library(site: Site, facts: Mapping[str, str]) -> Iterator[Finding]:
    """Check that mpi4py loads the MPI library of the site file."""
    library, failure = facts["MPI library"], facts["MPI failure"]
    if "mpi4py" not in facts:
        return
    kind, _ = parse_mpi_library(library)
    if failure:
        fix = "install an MPI (pip install mpich), or load the module that mpi4py was built with: modules.load"
        yield error("MPI library", f"mpi4py cannot load it: {failure}", fix)
    elif not kind:
        yield warning("MPI library", f"{library}: unknown to hpcrun", "set mpi.library to a compatible library")
    elif kind != site.mpi.library and (kind, site.mpi.library) != (
        "mpich",
        "parastation",
    ):  # ParaStation MPI is based on MPICH
        fix = f'set mpi.library = "{kind}", or load the module of the configured library: modules.load'
        yield error("MPI library", f'{library}, but the site file has mpi.library = "{site.mpi.library}"', fix)
    else:
        yield ok("MPI library", library)


def check_launcher(site: Site, facts: Mapping[str, str]) -> Iterator[Finding]:
    """Check that the launcher is installed and belongs to the MPI library."""
    found = facts.get(site.launcher_name)
    if found is None:  # none is needed, or the site file describes one that hosts do not look for
        return
    right = LAUNCHER_NAMES.get(site.mpi.library, "")
    if not found:
        fix = "load a module with it (modules.load), add its folder to prepend_path.PATH, or change launcher"
        yield error("launcher", f"{site.launcher_name} is not on the job's PATH", fix)
    elif launchers.site_launcher(site).version and "(" in found and "()" not in found and right not in found:
        fix = f"the first on PATH must be {right}'s: see modules.load and prepend_path.PATH, or mpi.library"
        yield error("launcher", f"{site.launcher_name} is {found}, but mpi.library is {site.mpi.library}", fix)
    else:
        yield ok("launcher", found.removesuffix(" ()"))


def check_cuda(site: Site, facts: Mapping[str, str]) -> Iterator[Finding]:
    """Check the CUDA files that XLA needs, if the host has GPUs or the site file sets them."""
    if facts["GPUs"] == "none" and not (site.cuda.libdevice or site.cuda.data_dir):
        return
    missing = [name for name in ("libdevice", "ptxas") if not facts[name]]
    if missing:
        fix = "load a CUDA module, pip install 'hpcrun-slurm[train-gpu]', or set cuda.data_dir or cuda.libdevice"
        level = error if facts["GPUs"] != "none" else warning
        named = xla_flags.parse_data_dir(facts["XLA_FLAGS"])
        where = f"{named}, set in XLA_FLAGS" if named else "any of the usual places (hpcrun cuda lists them)"
        yield level("XLA", f"{' and '.join(missing)}: not in {where}", fix)
    else:
        yield ok("XLA", f"{facts['libdevice']}, {facts['ptxas']}")


def check_ulimits(_site: Site, facts: Mapping[str, str]) -> Iterator[Finding]:
    """Check the limits of open files, and of locked memory for InfiniBand."""
    files, locked = facts["limit of open files"], facts["limit of locked memory"]
    words = [f"{name.removeprefix('limit of ')} {facts[name]}" for name in facts if name.startswith("limit of ")]
    is_valid = True
    if files.isdigit() and int(files) < MIN_OPEN_FILES:
        is_valid = False
        fix = f'setup = ["ulimit -n {MIN_OPEN_FILES}"] in the site file, where the hard limit allows it'
        yield warning("limits of the shell", f"open files: {files}", fix)
    if facts["InfiniBand"] and locked != "unlimited":
        is_valid = False
        fix = 'setup = ["ulimit -l unlimited"] in the site file, or ask administrators (PropagateResourceLimitsExcept)'
        found = f"locked memory: {locked}, but InfiniBand ({facts['InfiniBand']}) needs it unlimited"
        yield warning("limits of the shell", found, fix)
    if is_valid:
        yield ok("limits of the shell", ", ".join(words))


def check_clock(_site: Site, facts: Mapping[str, str]) -> Iterator[Finding]:
    """Check a node's clock; the check of the run root covers this host's."""
    if "clock skew" in facts:
        yield login_host.clock_finding(float(facts["clock skew"]), facts["host"])
