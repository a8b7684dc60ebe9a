"""Checks of a job's software environment against the site file, on the login host and on nodes."""

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
    from hpcrun.sites.site_model import Site

MIN_OPEN_FILES = 1024
"""Minimum for the limit of open files, because frameworks open many data files."""

BACKENDS = ("tensorflow", "tensorflow-cpu", "torch", "jax")


def check_modules(site: Site, facts: Mapping[str, str]) -> Iterator[Finding]:
    """Report the loaded modules; if a module could not be loaded, the job script would have failed earlier."""
    if site.modules.load or site.modules.purge:
        yield ok("modules", facts["modules"])


def check_python(_site: Site, facts: Mapping[str, str]) -> Iterator[Finding]:
    """Check the jobs' Python, its version of hpcrun, and its training packages."""
    yield ok("Python", facts["Python"])
    if facts["hpcrun"] != __version__:
        fix = f"install hpcrun {__version__} in the jobs' environment, or the jobs' version here"
        yield warning("hpcrun", f"{facts['hpcrun']} in the jobs' Python, {__version__} here", fix)
    else:
        yield ok("hpcrun", f"{__version__}, here and in the jobs' Python")
    installed_packages = [f"{name} {facts[name]}" for name in ("keras", *BACKENDS, "mpi4py") if name in facts]
    missing_packages = [name for name in ("keras", "mpi4py") if name not in facts]
    missing_packages += [] if any(name in facts for name in BACKENDS) else ["tensorflow (or jax, or torch)"]
    if missing_packages:
        fix = "pip install 'hpcrun-slurm[train-gpu]' (without GPUs: [train-cpu]) in that environment"
        yield warning("packages", f"not in the jobs' Python: {', '.join(missing_packages)}", fix)
    else:
        yield ok("packages", ", ".join(installed_packages))


def check_mpi_library(site: Site, facts: Mapping[str, str]) -> Iterator[Finding]:
    """Check that mpi4py loads the MPI library of the site file."""
    library, failure = facts["MPI library"], facts["MPI failure"]
    if "mpi4py" not in facts:
        return
    loaded_library, _ = parse_mpi_library(library)
    if failure:
        fix = "install an MPI (pip install mpich), or load the module that mpi4py was built with: modules.load"
        yield error("MPI library", f"mpi4py cannot load it: {failure}", fix)
    elif not loaded_library:
        yield warning("MPI library", f"{library}: unknown to hpcrun", "set mpi.library to a compatible library")
    elif loaded_library != site.mpi.library and (loaded_library, site.mpi.library) != (
        "mpich",
        "parastation",
    ):  # ParaStation MPI is based on MPICH
        fix = f'set mpi.library = "{loaded_library}", or load the module of the configured library: modules.load'
        yield error("MPI library", f'{library}, but the site file has mpi.library = "{site.mpi.library}"', fix)
    else:
        yield ok("MPI library", library)


def check_launcher(site: Site, facts: Mapping[str, str]) -> Iterator[Finding]:
    """Check that the launcher is installed and belongs to the MPI library."""
    launcher_path = facts.get(site.launcher_name)
    if launcher_path is None:  # the site needs no launcher, or the site file describes its own launcher
        return
    library_name = LAUNCHER_NAMES.get(site.mpi.library, "")
    if not launcher_path:
        fix = "load a module with it (modules.load), add its folder to prepend_path.PATH, or change launcher"
        yield error("launcher", f"{site.launcher_name} is not on the job's PATH", fix)
    elif (
        launchers.site_launcher(site).version
        and "(" in launcher_path
        and "()" not in launcher_path
        and library_name not in launcher_path
    ):
        fix = f"the first on PATH must be {library_name}'s: see modules.load and prepend_path.PATH, or mpi.library"
        yield error("launcher", f"{site.launcher_name} is {launcher_path}, but mpi.library is {site.mpi.library}", fix)
    else:
        yield ok("launcher", launcher_path.removesuffix(" ()"))


def check_cuda(site: Site, facts: Mapping[str, str]) -> Iterator[Finding]:
    """Check the CUDA files that XLA needs, if the host has GPUs or the site file sets them."""
    if facts["GPUs"] == "none" and not (site.cuda.libdevice or site.cuda.data_dir):
        return
    missing_files = [name for name in ("libdevice", "ptxas") if not facts[name]]
    if missing_files:
        fix = "load a CUDA module, pip install 'hpcrun-slurm[train-gpu]', or set cuda.data_dir or cuda.libdevice"
        finding_of_severity = error if facts["GPUs"] != "none" else warning
        data_dir = xla_flags.parse_data_dir(facts["XLA_FLAGS"])
        searched_text = (
            f"{data_dir}, set in XLA_FLAGS" if data_dir else "any of the usual places (hpcrun cuda lists them)"
        )
        yield finding_of_severity("XLA", f"{' and '.join(missing_files)}: not in {searched_text}", fix)
    else:
        yield ok("XLA", f"{facts['libdevice']}, {facts['ptxas']}")


def check_ulimits(_site: Site, facts: Mapping[str, str]) -> Iterator[Finding]:
    """Check the shell's limits of open files, and of locked memory, which InfiniBand needs."""
    open_files, locked_memory = facts["limit of open files"], facts["limit of locked memory"]
    descriptions = [f"{name.removeprefix('limit of ')} {facts[name]}" for name in facts if name.startswith("limit of ")]
    is_valid = True
    if open_files.isdigit() and int(open_files) < MIN_OPEN_FILES:
        is_valid = False
        fix = f'setup = ["ulimit -n {MIN_OPEN_FILES}"] in the site file, where the hard limit allows it'
        yield warning("limits of the shell", f"open files: {open_files}", fix)
    if facts["InfiniBand"] and locked_memory != "unlimited":
        is_valid = False
        fix = 'setup = ["ulimit -l unlimited"] in the site file, or ask administrators (PropagateResourceLimitsExcept)'
        problem = f"locked memory: {locked_memory}, but InfiniBand ({facts['InfiniBand']}) needs it unlimited"
        yield warning("limits of the shell", problem, fix)
    if is_valid:
        yield ok("limits of the shell", ", ".join(descriptions))


def check_clock(_site: Site, facts: Mapping[str, str]) -> Iterator[Finding]:
    """Check a node's clock; `login_host.check_run_root` checks the clock of the login host."""
    if "clock skew" in facts:
        yield login_host.clock_finding(float(facts["clock skew"]), facts["host"])
