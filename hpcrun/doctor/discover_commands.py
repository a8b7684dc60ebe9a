"""Commands that discover a cluster, run in parallel so that a hanging controller costs only one timeout."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcrun.doctor.discover_mpi import PRINT_MPI_LIBRARY
from hpcrun.paths import user_name
from hpcrun.schedulers.command import run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SLURM_COMMANDS = {
    "config": ("scontrol", "show", "config"),
    "partitions": ("scontrol", "--oneliner", "show", "partition"),
    "nodes": ("sinfo", "--noheader", "--exact", "--format=%R|%c|%m|%G|%N"),
    "mpi types": ("srun", "--mpi=list"),
}
MPI_COMMANDS = {
    "python": PRINT_MPI_LIBRARY,
    "mpirun": ("mpirun", "--version"),
    "mpiexec": ("mpiexec", "--version"),
}
"""Commands that identify the MPI library of this Python, without MPI_Init, and the launchers."""


@dataclass(frozen=True)
class CommandOutput:
    """The output of a command.

    Attributes:
        text: The standard output; empty if the command is not installed or failed.
        failure: Why it failed; empty if it succeeded.
        errors: The standard error, where some versions print the result.
    """

    text: str
    failure: str = ""
    errors: str = ""

    @property
    def combined(self) -> str:
        """Standard output and standard error."""
        return f"{self.text}\n{self.errors}"


def account_commands() -> dict[str, tuple[str, ...]]:
    """Return the commands that query this user's accounts."""
    table, user = ("sacctmgr", "--noheader", "--parsable2", "show"), user_name()
    return {
        "accounts": (*table, "assoc", f"user={user}", "format=account,cluster"),
        "default account": (*table, "user", user, "format=defaultaccount"),
    }


def run_commands(commands: Mapping[str, Sequence[str]], conf: str | None = None) -> dict[str, CommandOutput]:
    """Run commands in parallel.

    Args:
        commands: Command lines by name.
        conf: The slurm.conf of the Slurm to query; by default SLURM_CONF or Slurm's own default.

    Returns:
        Their outputs by the same names.
    """
    with ThreadPoolExecutor(len(commands)) as pool:
        outputs = pool.map(lambda command: run_command(command, conf), commands.values())
        return dict(zip(commands, outputs, strict=True))


def run_command(command: Sequence[str], conf: str | None = None) -> CommandOutput:
    """Run one command.

    Args:
        command: The command line.
        conf: As in `run_commands`.
    """
    if not shutil.which(command[0]):
        return CommandOutput("", f"{command[0]} is not installed")
    result = run(command, conf=conf)
    if result.code != 0:
        return CommandOutput("", result.error_message)
    return CommandOutput(result.out, errors=result.err)
