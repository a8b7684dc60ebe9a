"""Where libdevice.10.bc and ptxas may lie: pip wheels, conda environments, CUDA toolkits."""

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
"""Where XLA looks below --xla_gpu_cuda_data_dir, and nowhere else."""
PTXAS = Path("bin/ptxas")

# CUDA's own layout; one that TensorFlow's old instructions made in conda environments, conda's of CUDA 11, Debian's
_LIBDEVICES = (LIBDEVICE, Path("lib") / LIBDEVICE, Path("lib/libdevice.10.bc"), Path("libdevice/libdevice.10.bc"))
_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_DIR", "CUDATOOLKIT_HOME", "EBROOTCUDA", "NVHPC_CUDA_HOME")
SYSTEM = ("/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda", "/usr/lib/nvidia-cuda-toolkit")
"""Where distributions and NVIDIA's own packages install CUDA."""


@dataclass(frozen=True)
class Place:
    """A place where CUDA's files may lie.

    Attributes:
        why: What led there, such as a site key, a variable, or "pip wheel".
        path: A CUDA root, or the file that a site key names.
        libdevice: The libdevice.10.bc that is there.
        ptxas: The ptxas that is there.
    """

    why: str
    path: Path
    libdevice: Path | None = None
    ptxas: Path | None = None


def root(why: str, path: Path) -> Place:
    """Return a CUDA root, or a folder that is arranged otherwise, with what of CUDA is below it."""
    libdevice = next((path / file for file in _LIBDEVICES if there(path / file)), None)
    return Place(why, path, libdevice, path / PTXAS if executable(path / PTXAS) else None)


def there(path: Path) -> bool:
    """Return whether a file or folder is there, and nobody keeps it from this user."""
    with suppress(OSError):
        return path.exists()
    return False


def executable(file: Path) -> bool:
    """Return whether a program is there and may be run."""
    return there(file) and os.access(file, os.X_OK)


def packages(environ: Mapping[str, str], python: Sequence[str], prefix: Path) -> list[Path]:
    """Return the folders that Python packages lie in, those of the job's Python first.

    Args:
        environ: The job's environment, which may have another Python's environment active.
        python: The module search path of the job's Python.
        prefix: Where that Python is installed.
    """
    own = [Path(folder) for folder in python if folder.endswith(("site-packages", "dist-packages"))]
    others = [Path(environ[name]) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environ.get(name)]
    active = [folder for other in others if other != prefix for folder in other.glob("lib/python3*/site-packages")]
    return list(dict.fromkeys([*own, *active]))


def known(
    environ: Mapping[str, str], packages: Iterable[Path], prefix: Path, system: Sequence[str] = SYSTEM
) -> list[Place]:
    """Return the places where CUDA may lie, the one that belongs most to the job's Python first.

    Args:
        environ: The job's environment.
        packages: The folders that Python packages lie in.
        prefix: Where the job's Python is installed, which may be a conda environment that is not activated.
        system: Folders of every machine.
    """
    wheels = [(wheel, _fits(wheel, folder)) for folder in packages for wheel in _wheels(folder / "nvidia")]
    found = [("pip wheel", wheel) for wheel, fits in wheels if fits]
    if there(prefix / "conda-meta"):
        found.append(("conda environment of the job's Python", prefix))
    if conda := environ.get("CONDA_PREFIX"):
        found.append(("CONDA_PREFIX", Path(conda)))
    found += [(name, Path(environ[name])) for name in _VARIABLES if environ.get(name)]
    if environ.get("NVHPC_ROOT"):  # its folder cuda has one for each version, and often links to one of them
        nvhpc = Path(environ["NVHPC_ROOT"], "cuda")
        found += [("NVHPC_ROOT", folder) for folder in (nvhpc, *sorted(nvhpc.glob("[0-9]*"), key=_version)[::-1])]
    if nvcc := shutil.which("nvcc", path=environ.get("PATH", "")):
        found.append(("nvcc on PATH", Path(nvcc).resolve().parent.parent))
    places = [root(why, Path(os.path.abspath(path))) for why, path in found]  # noqa: PTH100 - links stay as they are
    if ptxas := shutil.which("ptxas", path=environ.get("PATH", "")):
        places.append(Place("ptxas on PATH", Path(ptxas).parent, ptxas=Path(ptxas)))
    places += [root("this system", Path(folder)) for folder in system]
    places += [root("pip wheel, not of TensorFlow's CUDA", wheel) for wheel, fits in wheels if not fits]
    first: dict[Path, Place] = {}
    for place in places:
        first.setdefault(place.path, place)
    return list(first.values())


def _wheels(nvidia: Path) -> list[Path]:
    """Return the roots of nvcc's wheels: one of its own up to CUDA 12, from 13 on one for all of CUDA's wheels."""
    found = [nvidia / "cuda_nvcc", *sorted(nvidia.glob("cu[0-9][0-9]"))]
    return [folder for folder in found if there(folder)]


def _fits(wheel: Path, packages: Path) -> bool:
    """Return whether a wheel is of the CUDA that the TensorFlow beside it was built for: an older driver may want that.

    TensorFlow says so in a file of its own, which is not run here.
    """
    try:
        told = (packages / "tensorflow/python/platform/build_info.py").read_text()
    except OSError:
        return True
    built = re.search(r"'cuda_version', '(\d+)", told)
    return not built or (int(built[1]) >= 13) == (wheel.name != "cuda_nvcc")


def _version(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", folder.name)]
