"""mpiexec: Hydra, the launcher of MPICH and Intel MPI (https://www.mpich.org/static/docs/latest/www1/mpiexec.html)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.launchers.base import Launcher

if TYPE_CHECKING:
    from hpcrun.spec import JobSpec


def command(spec: JobSpec, hostfile: str) -> list[str]:
    """Return the words before the program: mpiexec and its options."""
    launcher_name = {"slurm": "slurm", "ssh": "ssh", "host": "fork"}[spec.transport]
    return ["mpiexec", "-launcher", launcher_name, "-f", hostfile, "-n", str(spec.resources.ranks)]


LAUNCHER = Launcher(
    name="mpiexec",
    command=command,
    rank=("PMI_RANK",),
    local_rank=("MPI_LOCALRANKID",),
    local_ranks=("MPI_LOCALNRANKS",),
    hostfile="hydra",
    ignores_failures=True,
    libraries=("mpich", "intel", "mvapich"),
    part_of_mpi=True,
    starts_over_ssh=True,
    version=("--version",),
)
