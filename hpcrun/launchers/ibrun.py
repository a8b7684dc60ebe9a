"""ibrun: the launcher of TACC's clusters, for any loaded MPI (https://docs.tacc.utexas.edu).

ibrun sets the variables of the MPI library's own launcher. This module follows TACC's documentation and is untested.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.launchers.base import Launcher

if TYPE_CHECKING:
    from hpcrun.spec import JobSpec


def command(spec: JobSpec, _hostfile: str) -> list[str]:
    """Return the words before the program: ibrun with all ranks of the job, from the first task slot on."""
    return ["ibrun", "-n", str(spec.resources.ranks), "-o", "0"]


LAUNCHER = Launcher(
    name="ibrun",
    command=command,
    rank=("PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"),
    local_rank=("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK"),
    local_ranks=("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"),
    libraries=("intel", "mvapich", "openmpi", "openmpi4", "mpich"),
)
