"""Asking programs, all at the same time: a controller that hangs costs one time limit and not one for each question."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcrun.doctor.discover_mpi import LIBRARY
from hpcrun.paths import user_name
from hpcrun.schedulers.ask import ask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SLURM = {
    "config": ("scontrol", "show", "config"),
    "partitions": ("scontrol", "--oneliner", "show", "partition"),
    "nodes": ("sinfo", "--noheader", "--exact", "--format=%R|%c|%m|%G|%N"),
    "mpi types": ("srun", "--mpi=list"),
}
MPI = {
    "python": LIBRARY,
    "mpirun": ("mpirun", "--version"),
    "mpiexec": ("mpiexec", "--version"),
}
"""Which MPI Python's is, without starting it, and whose launchers are here."""


@dataclass(frozen=True)
class Answer:
    """What a program said.

    Attributes:
        text: Its output; empty where it is not here or failed.
        fault: Why there is no answer; empty where there is one.
        errors: What it said beside its output, of some versions the answer.
    """

    text: str
    fault: str = ""
    errors: str = ""

    @property
    def whole(self) -> str:
        """All that it said."""
        return f"{self.text}\n{self.errors}"


def accounts() -> dict[str, tuple[str, ...]]:
    """Return the questions for this user's accounts, for where Slurm has any accounting."""
    table, user = ("sacctmgr", "--noheader", "--parsable2", "show"), user_name()
    return {
        "accounts": (*table, "assoc", f"user={user}", "format=account,cluster"),
        "default account": (*table, "user", user, "format=defaultaccount"),
    }


def answers(questions: Mapping[str, Sequence[str]], conf: str | None = None) -> dict[str, Answer]:
    """Ask programs at the same time.

    Args:
        questions: Command lines by a name.
        conf: The slurm.conf of the Slurm that they ask; where not given, SLURM_CONF or Slurm itself says which.

    Returns:
        The answers by the same names.
    """
    with ThreadPoolExecutor(len(questions)) as pool:
        asked = pool.map(lambda command: answer(command, conf), questions.values())
        return dict(zip(questions, asked, strict=True))


def answer(command: Sequence[str], conf: str | None = None) -> Answer:
    """Ask one program.

    Args:
        command: Its words.
        conf: As for `answers`.
    """
    if not shutil.which(command[0]):
        return Answer("", f"there is no {command[0]} here")
    said = ask(command, conf=conf)
    if said.code != 0:
        return Answer("", said.complaint)
    return Answer(said.out, errors=said.err)
