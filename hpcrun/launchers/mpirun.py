"""mpirun: Open MPI's launcher, in a Slurm job or over ssh (https://docs.open-mpi.org/en/main/man-openmpi/man1/mpirun.1.html)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.launchers.base import Launcher
from hpcrun.launchers.rank_variables import list_rank_variables

if TYPE_CHECKING:
    from hpcrun.spec import JobSpec


def command(spec: JobSpec, hostfile: str) -> list[str]:
    """Return the words before the program: mpirun and its options."""
    words = ["mpirun"]
    if spec.transport == "ssh":
        mca, ssh = ("--mca", "rsh") if spec.site.mpi.library == "openmpi4" else ("--prtemca", "ssh")
        words += [mca, "plm", ssh, mca, "ras", "^slurm"]
    given_options = {word.lstrip("-").partition("=")[0] for word in spec.site.launcher_args}
    if not given_options & {"bind-to", "map-by"}:  # mpirun accepts each of these options only once
        # Open MPI binds a rank to one core by default, but the threads of a rank need all its cores
        words += ["--bind-to", "none", "--map-by", "slot"]
    words += ["--hostfile", hostfile, "-n", str(spec.resources.ranks)]
    for name in list_rank_variables(spec) if spec.transport == "ssh" else ():
        words += ["-x", name]
    return words


LAUNCHER = Launcher(
    name="mpirun",
    command=command,
    rank=("OMPI_COMM_WORLD_RANK",),
    local_rank=("OMPI_COMM_WORLD_LOCAL_RANK",),
    local_ranks=("OMPI_COMM_WORLD_LOCAL_SIZE",),
    hostfile="openmpi",
    stop_signal="USR2",
    hides_signals=True,
    libraries=("openmpi", "openmpi4"),
    part_of_mpi=True,
    starts_over_ssh=True,
    version=("--version",),
)
