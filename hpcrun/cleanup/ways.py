"""The commands by which nodes run a Python program: here, over ssh, or through Slurm, which reaches many by one."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

_SSH = ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "ServerAliveInterval=5"]


@dataclass(frozen=True)
class Way:
    """How a Python program that is read from stdin is run on nodes.

    Attributes:
        kind: Here, over ssh, in a step beside those of a running job, or in a job of its own.
        python: The Python to run it with, where it is there.
        words: For Slurm, the options that say in which job, or what for a job.
    """

    kind: Literal["here", "ssh", "step", "job"]
    python: str = sys.executable
    words: tuple[str, ...] = ()

    @property
    def by_slurm(self) -> bool:
        """Whether one command reaches several nodes."""
        return self.kind in {"step", "job"}

    def command(self, nodes: Sequence[str], minutes: int = 2) -> list[str]:
        """Return the command that runs a program on nodes.

        Args:
            nodes: They; only Slurm reaches several.
            minutes: For how long a job is asked for.
        """
        if self.kind == "here":
            return [sys.executable, "-IS", "-"]
        # the jobs' own Python where it is there
        python = ["sh", "-c", 'command -v "$0" >/dev/null 2>&1 && exec "$0" -IS -; exec python3 -IS -', self.python]
        if self.kind == "ssh":
            return [*_SSH, "--", *nodes, shlex.join(python)]
        many = [f"--nodelist={','.join(nodes)}", f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}"]
        # what one node does ends no other's program
        tasks = ["--ntasks-per-node=1", "--cpus-per-task=1", "--mpi=none", "--kill-on-bad-exit=0", "--wait=0"]
        short = ["--job-name=hpcrun-cleanup", f"--time={minutes}", "--immediate=5"] if self.kind == "job" else []
        return ["srun", "--quiet", *short, *self.words, *many, *tasks, "--chdir=/", *python]


def here() -> Way:
    """Return the way to this host."""
    return Way("here")


def over_ssh(python: str) -> Way:
    """Return the way to nodes that let this user in over ssh without a password."""
    return Way("ssh", python)


def in_job(python: str, job_id: str) -> Way:
    """Return the way to nodes of a Slurm job that runs: a step beside the job's own."""
    return Way("step", python, (f"--jobid={job_id}", "--overlap", "--mem=0"))


def in_new_job(python: str, options: Sequence[str]) -> Way:
    """Return the way to nodes of a Slurm cluster: a short job, where there is room for it at once."""
    return Way("job", python, tuple(options))
