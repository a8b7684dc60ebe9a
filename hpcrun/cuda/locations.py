"""Locations of libdevice.10.bc and ptxas: pip wheels, conda environments, CUDA toolkits."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LIBDEVICE = Path("nvvm/libdevice/libdevice.10.bc")
"""The only path below --xla_gpu_cuda_data_dir that XLA tries."""
PTXAS = Path("bin/ptxas")

# the layouts of CUDA, of TensorFlow's old instructions for conda, of conda's CUDA 11, and of Debian
_LIBDEVICE_LAYOUTS = (
    LIBDEVICE,
    Path("lib") / LIBDEVICE,
    Path("lib/libdevice.10.bc"),
    Path("libdevice/libdevice.10.bc"),
)
_ROOT_VARIABLES = (
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_ROOT",
    "CUDA_DIR",
    "CUDATOOLKIT_HOME",
    "EBROOTCUDA",
    "NVHPC_CUDA_HOME",
)
SYSTEM_ROOTS = ("/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda", "/usr/lib/nvidia-cuda-toolkit")
"""Folders in which distributions and NVIDIA's packages install CUDA."""


@dataclass(frozen=True)
class CudaLocation:
    """A folder in which CUDA's files may be.

    Attributes:
        why: Where its path comes from, such as a site key, a variable, or "pip wheel".
        path: A CUDA root, or the file that a site key names.
        libdevice: Its libdevice.10.bc; None without one.
        ptxas: Its ptxas; None without one.
    """

    why: str
    path: Path
    libdevice: Path | None = None
    ptxas: Path | None = None


def inspect_root(why: str, path: Path) -> CudaLocation:
    """Return a CUDA root, or a folder with another known layout, with the CUDA files in it."""
    libdevice = next((path / file for file in _LIBDEVICE_LAYOUTS if path_exists(path / file)), None)
    return CudaLocation(why, path, libdevice, path / PTXAS if is_executable(path / PTXAS) else None)


def path_exists(path: Path) -> bool:
    """Return whether a file or folder exists and is accessible."""
    with suppress(OSError):
        return path.exists()
    return False


def is_executable(file: Path) -> bool:
    """Return whether a program exists and is executable."""
    return path_exists(file) and os.access(file, os.X_OK)


def find_site_packages(environ: Mapping[str, str], python: Sequence[str], prefix: Path) -> list[Path]:
    """Return the folders with Python packages, those of the job's Python first.

    Args:
        environ: The job's environment, in which another Python environment may be active.
        python: The module search path of the job's Python.
        prefix: The folder in which that Python is installed.
    """
    own = [Path(folder) for folder in python if folder.endswith(("site-packages", "dist-packages"))]
    others = [Path(environ[name]) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environ.get(name)]
    active = [folder for other in others if other != prefix for folder in other.glob("lib/python3*/site-packages")]
    return list(dict.fromkeys([*own, *active]))


def find_locations(
    environ: Mapping[str, str], packages: Iterable[Path], prefix: Path, system_roots: Sequence[str] = SYSTEM_ROOTS
) -> list[CudaLocation]:
    """Return the possible locations of CUDA, those that belong to the job's Python first.

    Args:
        environ: The job's environment.
        packages: The folders with Python packages.
        prefix: The folder in which the job's Python is installed, possibly a conda environment that is not active.
        system_roots: Folders of every machine.
    """
    wheels = [
        (wheel, _matches_tensorflow(wheel, folder)) for folder in packages for wheel in _nvcc_wheels(folder / "nvidia")
    ]
    roots = [("pip wheel", wheel) for wheel, matches in wheels if matches]
    if path_exists(prefix / "conda-meta"):
        roots.append(("conda environment of the job's Python", prefix))
    if conda := environ.get("CONDA_PREFIX"):
        roots.append(("CONDA_PREFIX", Path(conda)))
    roots += [(name, Path(environ[name])) for name in _ROOT_VARIABLES if environ.get(name)]
    if environ.get("NVHPC_ROOT"):  # its folder cuda has a folder per version, and often links to one of them
        nvhpc = Path(environ["NVHPC_ROOT"], "cuda")
        roots += [("NVHPC_ROOT", folder) for folder in (nvhpc, *sorted(nvhpc.glob("[0-9]*"), key=_version_key)[::-1])]
    if nvcc := shutil.which("nvcc", path=environ.get("PATH", "")):
        roots.append(("nvcc on PATH", Path(nvcc).resolve().parent.parent))
    places = [inspect_root(why, Path(os.path.abspath(path))) for why, path in roots]  # noqa: PTH100 - keeps links
    if ptxas := shutil.which("ptxas", path=environ.get("PATH", "")):
        places.append(CudaLocation("ptxas on PATH", Path(ptxas).parent, ptxas=Path(ptxas)))
    places += [inspect_root("this system", Path(folder)) for folder in system_roots]
    places += [inspect_root("pip wheel, not of TensorFlow's CUDA", wheel) for wheel, matches in wheels if not matches]
    first: dict[Path, CudaLocation] = {}
    for place in places:
        first.setdefault(place.path, place)
    return list(first.values())


def _nvcc_wheels(nvidia: Path) -> list[Path]:
    """Return the CUDA roots of the nvcc wheels: a separate one up to CUDA 12, from 13 on one for all CUDA wheels."""
    found = [nvidia / "cuda_nvcc", *sorted(nvidia.glob("cu[0-9][0-9]"))]
    return [folder for folder in found if path_exists(folder)]


def _matches_tensorflow(wheel: Path, packages: Path) -> bool:
    """Return whether a wheel is of the CUDA version for which the TensorFlow beside it was built.

    An older driver may need that version. It is read from TensorFlow's build_info.py, which is not executed.
    """
    try:
        build_info = (packages / "tensorflow/python/platform/build_info.py").read_text()
    except OSError:
        return True
    built = re.search(r"'cuda_version', '(\d+)", build_info)
    return not built or (int(built[1]) >= 13) == (wheel.name != "cuda_nvcc")


def _version_key(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", folder.name)]
