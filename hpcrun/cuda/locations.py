"""Possible locations of libdevice.10.bc and ptxas: pip wheels, conda environments, CUDA toolkits."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LIBDEVICE = Path("nvvm/libdevice/libdevice.10.bc")
"""The only path below --xla_gpu_cuda_data_dir at which XLA searches for libdevice."""
PTXAS = Path("bin/ptxas")

# the layouts of CUDA, of TensorFlow's old instructions for conda, of CUDA 11 in conda, and of Debian
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
"""Folders in which Linux distributions and NVIDIA's packages install CUDA."""


@frozen
class CudaLocation:
    """A possible location of CUDA's files.

    Attributes:
        why: The source of the path, such as a site key, a variable, or "pip wheel".
        path: The path of a CUDA root, or of a file that a site key names.
        libdevice: The path of libdevice.10.bc at this location; None if it does not exist.
        ptxas: The path of ptxas at this location; None if it does not exist.
    """

    why: str
    path: Path
    libdevice: Path | None = None
    ptxas: Path | None = None


def inspect_root(source: str, path: Path) -> CudaLocation:
    """Return the location of a CUDA root, or of a folder with another known layout, and the files at this location."""
    libdevice = next((path / file for file in _LIBDEVICE_LAYOUTS if path_exists(path / file)), None)
    return CudaLocation(source, path, libdevice, path / PTXAS if is_executable(path / PTXAS) else None)


def path_exists(path: Path) -> bool:
    """Return whether a file or folder exists and is accessible."""
    with suppress(OSError):
        return path.exists()
    return False


def is_executable(file: Path) -> bool:
    """Return whether a program exists and is executable."""
    return path_exists(file) and os.access(file, os.X_OK)


def find_site_packages(environ: Mapping[str, str], search_path: Sequence[str], prefix: Path) -> list[Path]:
    """Return the folders with Python packages, the folders of the job's Python first.

    Args:
        environ: The job's environment variables, in which another Python environment may be active.
        search_path: The module search path of the job's Python.
        prefix: The folder in which the job's Python is installed.
    """
    own_folders = [Path(folder) for folder in search_path if folder.endswith(("site-packages", "dist-packages"))]
    active_prefixes = [Path(environ[name]) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environ.get(name)]
    active_folders = [
        folder
        for active_prefix in active_prefixes
        if active_prefix != prefix
        for folder in active_prefix.glob("lib/python3*/site-packages")
    ]
    return list(dict.fromkeys([*own_folders, *active_folders]))


def find_locations(
    environ: Mapping[str, str],
    package_folders: Iterable[Path],
    prefix: Path,
    system_roots: Sequence[str] = SYSTEM_ROOTS,
) -> list[CudaLocation]:
    """Return the possible locations of CUDA's files, the locations in the job's Python first.

    Args:
        environ: The job's environment variables.
        package_folders: The folders with Python packages.
        prefix: The folder in which the job's Python is installed, possibly a conda environment that is not active.
        system_roots: System folders in which CUDA may be installed.
    """
    nvcc_wheels = [
        (wheel, _matches_tensorflow(wheel, folder))
        for folder in package_folders
        for wheel in _nvcc_wheels(folder / "nvidia")
    ]
    sources_and_roots = [("pip wheel", wheel) for wheel, matches in nvcc_wheels if matches]
    if path_exists(prefix / "conda-meta"):
        sources_and_roots.append(("conda environment of the job's Python", prefix))
    if conda := environ.get("CONDA_PREFIX"):
        sources_and_roots.append(("CONDA_PREFIX", Path(conda)))
    sources_and_roots += [(name, Path(environ[name])) for name in _ROOT_VARIABLES if environ.get(name)]
    # the subfolder cuda has a subfolder for each version, and often a link to one of them
    if environ.get("NVHPC_ROOT"):
        nvhpc_folder = Path(environ["NVHPC_ROOT"], "cuda")
        sources_and_roots += [
            ("NVHPC_ROOT", folder)
            for folder in (nvhpc_folder, *sorted(nvhpc_folder.glob("[0-9]*"), key=_version_key)[::-1])
        ]
    if nvcc := shutil.which("nvcc", path=environ.get("PATH", "")):
        sources_and_roots.append(("nvcc on PATH", Path(nvcc).resolve().parent.parent))
    locations = [inspect_root(why, Path(os.path.abspath(path))) for why, path in sources_and_roots]  # noqa: PTH100 - keeps links
    if ptxas := shutil.which("ptxas", path=environ.get("PATH", "")):
        locations.append(CudaLocation("ptxas on PATH", Path(ptxas).parent, ptxas=Path(ptxas)))
    locations += [inspect_root("this system", Path(folder)) for folder in system_roots]
    locations += [
        inspect_root("pip wheel, not of TensorFlow's CUDA", wheel) for wheel, matches in nvcc_wheels if not matches
    ]
    locations_by_path: dict[Path, CudaLocation] = {}
    for location in locations:
        locations_by_path.setdefault(location.path, location)
    return list(locations_by_path.values())


def _nvcc_wheels(nvidia: Path) -> list[Path]:
    """Return the CUDA roots of installed nvcc wheels; since CUDA 13, all CUDA wheels share one folder."""
    candidates = [nvidia / "cuda_nvcc", *sorted(nvidia.glob("cu[0-9][0-9]"))]
    return [folder for folder in candidates if path_exists(folder)]


def _matches_tensorflow(wheel: Path, package_folder: Path) -> bool:
    """Return whether a wheel has the CUDA version for which the installed TensorFlow was built.

    An older driver may need this CUDA version, which is read from the text of TensorFlow's build_info.py.
    """
    try:
        build_info = (package_folder / "tensorflow/python/platform/build_info.py").read_text()
    except OSError:
        return True
    cuda_version = re.search(r"'cuda_version', '(\d+)", build_info)
    return not cuda_version or (int(cuda_version[1]) >= 13) == (wheel.name != "cuda_nvcc")


def _version_key(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", folder.name)]
