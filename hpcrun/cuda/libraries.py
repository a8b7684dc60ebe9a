"""Which of CUDA's libraries TensorFlow loads: those that pip installed with it, others, or none."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.cuda.elf import runpath
from hpcrun.cuda.places import there

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LOADED = {"cuda_runtime", "cublas", "cudnn", "cufft", "cusolver", "cusparse"}
"""Wheels without any one of which TensorFlow uses no GPU."""
_OF_THE_NETWORK = {"nccl", "nvshmem"}
"""Wheels that a cluster's own library may well stand in for: it is built for its network."""


def preferred(environ: Mapping[str, str], packages: Iterable[Path]) -> tuple[str | None, str]:
    """Return the LD_LIBRARY_PATH by which programs get the CUDA libraries that pip installed for them.

    TensorFlow's wheel names their folders in its RUNPATH, not always all of them: 2.21.0 forgets cuSOLVER's, and trains
    on the CPU. And LD_LIBRARY_PATH beats a RUNPATH (ld.so(8)): of a module's cuDNN or cuBLAS of another version, under
    the same name, that one is loaded. So what TensorFlow forgets comes first, or all that pip installed.

    Args:
        environ: The job's environment.
        packages: The folders that Python packages lie in.

    Returns:
        The value, and what is to be said of it; None and nothing where the variable is right as it is.
    """
    home = next((folder for folder in packages if _uses_runpath(folder) and _folders(folder)), None)
    if home is None:
        return None, ""
    tensorflow = next(home.glob("tensorflow-*.dist-info"), None)
    if tensorflow and _installer(tensorflow) == "conda":  # it was built for conda's libraries
        return None, ""
    ours = _folders(home)
    given = [folder for folder in environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    missed = [folder for folder in (_missed(home, ours) if tensorflow else []) if str(folder) not in given]
    if shadow := _shadow(given, ours):
        first = ours
        why = f"the libraries in {home / 'nvidia'}, or {shadow} would be loaded in place of the one there"
    elif tensorflow and missed:
        first = missed
        why = f"{', '.join(map(str, missed))}, where {tensorflow.stem} does not look by itself"
    else:
        return None, ""
    return ":".join(dict.fromkeys([*map(str, first), *given])), f"LD_LIBRARY_PATH begins with {why}"


def _uses_runpath(packages: Path) -> bool:
    """Return whether programs are there that LD_LIBRARY_PATH leads astray; PyTorch's RPATH beats it."""
    return any(there(packages / name) for name in ("tensorflow", "jaxlib"))


def _folders(packages: Path) -> list[Path]:
    found = [lib for lib in packages.glob("nvidia/*/lib") if lib.parent.name not in _OF_THE_NETWORK and _names(lib)]
    return sorted(found, key=lambda lib: (_of_13(lib), lib))


def _of_13(folder: Path) -> bool:
    """Return whether a folder has all of CUDA's libraries, as from CUDA 13 on."""
    return bool(re.fullmatch(r"cu\d+", folder.parent.name))


def _names(folder: str | Path) -> set[str]:
    with suppress(OSError):
        return {file.name for file in Path(folder).iterdir() if file.name.startswith("lib") and ".so." in file.name}
    return set()


def _shadow(given: list[str], ours: list[Path]) -> str | None:
    """Return the first file in LD_LIBRARY_PATH that would be loaded in place of one of ours."""
    left = set().union(*map(_names, ours))
    for folder in given:
        there = left & _names(folder)
        if there and folder not in map(str, ours):
            return f"{folder}/{min(there)}"
        left -= there
    return None


def _missed(packages: Path, ours: list[Path]) -> list[Path]:
    """Return the folders of ours that TensorFlow must look in and does not."""
    library = next(packages.glob("tensorflow/libtensorflow_framework.so.*"), None)
    if library is None:
        return []
    with suppress(OSError):
        named = {Path(folder).parts[-3:] for folder in runpath(library)}
        is_of_13 = any(_of_13(Path(*parts)) for parts in named)
        needed = [folder for folder in ours if (_of_13(folder) if is_of_13 else folder.parent.name in _LOADED)]
        return [folder for folder in needed if folder.parts[-3:] not in named]
    return []


def _installer(distribution: Path) -> str:
    with suppress(OSError):
        return (distribution / "INSTALLER").read_text().strip()
    return ""
