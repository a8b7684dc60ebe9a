"""The LD_LIBRARY_PATH with which TensorFlow loads the CUDA libraries that pip installed for it."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.cuda.elf import read_runpath
from hpcrun.cuda.locations import path_exists

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_REQUIRED_WHEELS = {"cuda_runtime", "cublas", "cudnn", "cufft", "cusolver", "cusparse"}
"""Wheels that TensorFlow needs to use a GPU."""
_NETWORK_WHEELS = {"nccl", "nvshmem"}
"""Wheels that a cluster's own library may replace: it is built for the cluster's network."""


def find_library_path(environ: Mapping[str, str], packages: Iterable[Path]) -> tuple[str | None, str]:
    """Return the LD_LIBRARY_PATH with which programs load the CUDA libraries that pip installed for them.

    TensorFlow's wheel lists their folders in its RUNPATH, but not always all of them: 2.21.0 omits cuSOLVER's, and then
    trains on the CPU. LD_LIBRARY_PATH takes precedence over a RUNPATH (ld.so(8)), so that a module's cuDNN or cuBLAS of
    another version may be loaded. The folders that TensorFlow omits, or all of pip's, are therefore put first.

    Args:
        environ: The job's environment.
        packages: The folders with Python packages.

    Returns:
        The value and a message about it; None and an empty message if the variable is fine as it is.
    """
    site_packages = next((folder for folder in packages if _uses_runpath(folder) and _library_folders(folder)), None)
    if site_packages is None:
        return None, ""
    tensorflow = next(site_packages.glob("tensorflow-*.dist-info"), None)
    if tensorflow and _read_installer(tensorflow) == "conda":  # conda's build uses conda's libraries
        return None, ""
    wheel_folders = _library_folders(site_packages)
    current = [folder for folder in environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    unsearched = [
        folder
        for folder in (_folders_not_in_runpath(site_packages, wheel_folders) if tensorflow else [])
        if str(folder) not in current
    ]
    if shadowing := _find_shadowing_file(current, wheel_folders):
        first = wheel_folders
        why = f"the libraries in {site_packages / 'nvidia'}, or {shadowing} would be loaded instead"
    elif tensorflow and unsearched:
        first = unsearched
        why = f"{', '.join(map(str, unsearched))}, which {tensorflow.stem} does not search by itself"
    else:
        return None, ""
    return ":".join(dict.fromkeys([*map(str, first), *current])), f"LD_LIBRARY_PATH begins with {why}"


def _uses_runpath(packages: Path) -> bool:
    """Return whether there are packages that LD_LIBRARY_PATH affects; PyTorch's RPATH takes precedence over it."""
    return any(path_exists(packages / name) for name in ("tensorflow", "jaxlib"))


def _library_folders(packages: Path) -> list[Path]:
    found = [
        lib for lib in packages.glob("nvidia/*/lib") if lib.parent.name not in _NETWORK_WHEELS and _library_names(lib)
    ]
    return sorted(found, key=lambda lib: (_is_unified_folder(lib), lib))


def _is_unified_folder(folder: Path) -> bool:
    """Return whether a folder contains all CUDA libraries, as wheels do from CUDA 13 on."""
    return bool(re.fullmatch(r"cu\d+", folder.parent.name))


def _library_names(folder: str | Path) -> set[str]:
    with suppress(OSError):
        return {file.name for file in Path(folder).iterdir() if file.name.startswith("lib") and ".so." in file.name}
    return set()


def _find_shadowing_file(current: list[str], wheel_folders: list[Path]) -> str | None:
    """Return the first file in LD_LIBRARY_PATH that would be loaded instead of one of the wheels'."""
    left = set().union(*map(_library_names, wheel_folders))
    for folder in current:
        there = left & _library_names(folder)
        if there and folder not in map(str, wheel_folders):
            return f"{folder}/{min(there)}"
        left -= there
    return None


def _folders_not_in_runpath(packages: Path, wheel_folders: list[Path]) -> list[Path]:
    """Return the wheel folders that TensorFlow needs and that its RUNPATH does not list."""
    library = next(packages.glob("tensorflow/libtensorflow_framework.so.*"), None)
    if library is None:
        return []
    with suppress(OSError):
        named = {Path(folder).parts[-3:] for folder in read_runpath(library)}
        unified = any(_is_unified_folder(Path(*parts)) for parts in named)
        needed = [
            folder
            for folder in wheel_folders
            if (_is_unified_folder(folder) if unified else folder.parent.name in _REQUIRED_WHEELS)
        ]
        return [folder for folder in needed if folder.parts[-3:] not in named]
    return []


def _read_installer(distribution: Path) -> str:
    with suppress(OSError):
        return (distribution / "INSTALLER").read_text().strip()
    return ""
