"""Asking programs, all at the same time: a controller that hangs costs one time limit and not one for each question."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcrun.doctor.discover_mpi import PRINT_MPI_LIBRARY
from hpcrun.paths import user_name
from hpcrun.schedulers.ask import ask

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
"""Which MPI Python's is, without starting it, and whose launchers are here."""


@dataclass(frozen=True)
class CommandOutput:
    """What a program said.

    Attributes:
        text: Its output; empty where it is not here or failed.
        fault: Why there is no answer; empty where there is one.
        errors: What it said beside its output, of some versions the answer.
    """

    text: str
    failure: str = ""
    errors: str = ""

    @property
    def combined(self) -> str:
        """All that it said."""
        return f"{self.text}\n{self.errors}"


def account_commands() -> dict[str, tuple[str, ...]]:
    """Return the questions for this user's accounts, for where Slurm has any accounting."""
    table, user = ("sacctmgr", "--noheader", "--parsable2", "show"), user_name()
    return {
        "accounts": (*table, "assoc", f"user={user}", "format=account,cluster"),
        "default account": (*table, "user", user, "format=defaultaccount"),
    }


def run_commands(commands: Mapping[str, Sequence[str]], conf: str | None = None) -> dict[str, CommandOutput]:
    """Ask programs at the same time.

    Args:
        commands: Command lines by a name.
        conf: The slurm.conf of the Slurm that they ask; where not given, SLURM_CONF or Slurm itself says which.

    Returns:
        The answers by the same names.
    """
    with ThreadPoolExecutor(len(commands)) as pool:
        outputs = pool.map(lambda command: run_command(command, conf), commands.values())
        return dict(zip(commands, outputs, strict=True))


def run_command(command: Sequence[str], conf: str | None = None) -> CommandOutput:
    """Ask one program.

    Args:
        command: Its words.
        conf: As for `run_commands`.
    """
    if not shutil.which(command[0]):
        return CommandOutput("", f"there is no {command[0]} here")
    result = ask(command, conf=conf)
    if result.code != 0:
        return CommandOutput("", result.complaint)
    return CommandOutput(result.out, errors=result.err)
