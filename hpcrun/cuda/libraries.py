"""The value of LD_LIBRARY_PATH with which TensorFlow loads the CUDA libraries that pip has installed for it."""

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
"""Names of the wheels that TensorFlow needs to use a GPU."""
_NETWORK_WHEELS = {"nccl", "nvshmem"}
"""Names of the wheels that a library of the cluster may replace, because that library supports its network."""


def find_library_path(environ: Mapping[str, str], package_folders: Iterable[Path]) -> tuple[str | None, str]:
    """Return the LD_LIBRARY_PATH with which programs load the CUDA libraries that pip has installed for them.

    The RUNPATH of TensorFlow's wheel lists the folders of these libraries, but may be incomplete: version 2.21.0 omits
    the folder of cuSOLVER, and then trains on the CPU. LD_LIBRARY_PATH takes precedence over a RUNPATH (ld.so(8)), so a
    different version of cuDNN or cuBLAS from a module may be loaded. LD_LIBRARY_PATH therefore begins with the omitted
    folders, or with all folders of pip's libraries.

    Args:
        environ: The job's environment variables.
        package_folders: The folders with Python packages.

    Returns:
        The value and a message about it; None and an empty message if the variable needs no change.
    """
    site_packages = next(
        (folder for folder in package_folders if _uses_runpath(folder) and _library_folders(folder)), None
    )
    if site_packages is None:
        return None, ""
    tensorflow_metadata = next(site_packages.glob("tensorflow-*.dist-info"), None)
    # TensorFlow from conda uses libraries from conda
    if tensorflow_metadata and _read_installer(tensorflow_metadata) == "conda":
        return None, ""
    wheel_folders = _library_folders(site_packages)
    current_folders = [folder for folder in environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    missing_folders = [
        folder
        for folder in (_folders_not_in_runpath(site_packages, wheel_folders) if tensorflow_metadata else [])
        if str(folder) not in current_folders
    ]
    if shadowing := _find_shadowing_file(current_folders, wheel_folders):
        prepended_folders = wheel_folders
        description = f"the libraries in {site_packages / 'nvidia'}, or {shadowing} would be loaded instead"
    elif tensorflow_metadata and missing_folders:
        prepended_folders = missing_folders
        description = (
            f"{', '.join(map(str, missing_folders))}, which {tensorflow_metadata.stem} does not search by itself"
        )
    else:
        return None, ""
    return ":".join(
        dict.fromkeys([*map(str, prepended_folders), *current_folders])
    ), f"LD_LIBRARY_PATH begins with {description}"


def _uses_runpath(package_folder: Path) -> bool:
    """Return whether a folder contains TensorFlow or JAX, which have a RUNPATH, unlike PyTorch with its RPATH."""
    return any(path_exists(package_folder / name) for name in ("tensorflow", "jaxlib"))


def _library_folders(package_folder: Path) -> list[Path]:
    library_folders = [
        lib
        for lib in package_folder.glob("nvidia/*/lib")
        if lib.parent.name not in _NETWORK_WHEELS and _library_names(lib)
    ]
    return sorted(library_folders, key=lambda lib: (_is_unified_folder(lib), lib))


def _is_unified_folder(folder: Path) -> bool:
    """Return whether a folder contains all CUDA libraries, as in the wheels since CUDA 13."""
    return bool(re.fullmatch(r"cu\d+", folder.parent.name))


def _library_names(folder: str | Path) -> set[str]:
    with suppress(OSError):
        return {file.name for file in Path(folder).iterdir() if file.name.startswith("lib") and ".so." in file.name}
    return set()


def _find_shadowing_file(current_folders: list[str], wheel_folders: list[Path]) -> str | None:
    """Return the first file in LD_LIBRARY_PATH that would be loaded instead of a library from a wheel."""
    remaining_names = set().union(*map(_library_names, wheel_folders))
    for folder in current_folders:
        shadowing_names = remaining_names & _library_names(folder)
        if shadowing_names and folder not in map(str, wheel_folders):
            return f"{folder}/{min(shadowing_names)}"
        remaining_names -= shadowing_names
    return None


def _folders_not_in_runpath(package_folder: Path, wheel_folders: list[Path]) -> list[Path]:
    """Return the library folders of wheels that TensorFlow needs and that its RUNPATH does not list."""
    library = next(package_folder.glob("tensorflow/libtensorflow_framework.so.*"), None)
    if library is None:
        return []
    with suppress(OSError):
        runpath_folders = {Path(folder).parts[-3:] for folder in read_runpath(library)}
        has_unified_folder = any(_is_unified_folder(Path(*parts)) for parts in runpath_folders)
        needed_folders = [
            folder
            for folder in wheel_folders
            if (_is_unified_folder(folder) if has_unified_folder else folder.parent.name in _REQUIRED_WHEELS)
        ]
        return [folder for folder in needed_folders if folder.parts[-3:] not in runpath_folders]
    return []


def _read_installer(distribution: Path) -> str:
    with suppress(OSError):
        return (distribution / "INSTALLER").read_text().strip()
    return ""
