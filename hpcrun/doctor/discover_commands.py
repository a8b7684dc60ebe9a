"""Commands that discover a cluster, run in parallel, so that a hanging controller costs only one timeout."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from hpcrun.doctor.mpi_library import PRINT_MPI_WHEEL
from hpcrun.paths import user_name
from hpcrun.schedulers import slurm_partitions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hpcrun.schedulers.command import CommandResult

SLURM_COMMANDS = {
    "config": ("scontrol", "show", "config"),
    "partitions": slurm_partitions.SHOW_PARTITIONS,
    "nodes": slurm_partitions.SHOW_NODES,
    "mpi types": ("srun", "--mpi=list"),
}
MPI_COMMANDS = {
    "python": PRINT_MPI_WHEEL,
    "mpirun": ("mpirun", "--version"),
    "mpiexec": ("mpiexec", "--version"),
}
"""Commands that identify the launchers, and the MPI library of this Python, without MPI_Init."""


def account_commands() -> dict[str, tuple[str, ...]]:
    """Return the commands that query this user's accounts."""
    show_command, user = ("sacctmgr", "--noheader", "--parsable2", "show"), user_name()
    return {
        "accounts": (*show_command, "assoc", f"user={user}", "format=account,cluster"),
        "default account": (*show_command, "user", user, "format=defaultaccount"),
    }


def run_commands(
    commands: Mapping[str, Sequence[str]], run: Callable[[Sequence[str]], CommandResult]
) -> dict[str, CommandResult]:
    """Run commands in parallel.

    Args:
        commands: Command lines by name.
        run: A function that runs one command, such as `hpcrun.schedulers.slurm_client.SlurmClient.query`.

    Returns:
        The result of each command, by name.
    """
    with ThreadPoolExecutor(len(commands)) as pool:
        return dict(zip(commands, pool.map(run, commands.values()), strict=True))
