"""CUDA-aware MPI: whether MPI takes GPU memory, and whether to give it any."""

from __future__ import annotations

import ctypes
from functools import cache

from hpcrun.errors import HpcrunError
from hpcrun.train.ranks.world import mpi_library
from hpcrun.train.settings import read_switch


def is_cuda_aware() -> bool:
    """Return whether to pass memory of GPUs to MPI (``$HPCRUN_CUDA_AWARE``; off by default).

    Raises:
        HpcrunError: The variable is neither 1 nor 0.
    """
    return read_switch("HPCRUN_CUDA_AWARE", default=False)


@cache
def require_cuda_support() -> None:
    """Refuse an MPI library without CUDA support: it would crash when given GPU memory. Cached, for each message.

    Open MPI, MPICH and the libraries derived from them have functions to query the support of CUDA.

    Raises:
        HpcrunError: The MPI library reports that it does not support CUDA.
    """
    from mpi4py import MPI

    library = ctypes.CDLL(MPI.__file__)  # the module also gives access to symbols of the MPI library
    answer = ctypes.c_int(1)
    if hasattr(library, "MPIX_Query_cuda_support"):
        answer.value = library.MPIX_Query_cuda_support()
    elif hasattr(library, "MPIX_GPU_query_support"):
        library.MPIX_GPU_query_support(0, ctypes.byref(answer))  # MPIX_GPU_SUPPORT_CUDA
    if not answer.value:
        raise HpcrunError(
            f"HPCRUN_CUDA_AWARE=1, but this MPI library takes no GPU memory: {mpi_library()}",
            hint="without the variable, tensors go through host memory; or use an MPI that was built with CUDA",
        )
