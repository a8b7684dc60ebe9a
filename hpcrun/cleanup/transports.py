"""Commands that run a Python program on nodes: locally, over ssh, or through Slurm."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Literal

from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

_SSH = ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "ServerAliveInterval=5"]


@frozen
class Transport:
    """A way to run a Python program, read from stdin, on nodes.

    Attributes:
        kind: ``here``: on this host; ``ssh``: over ssh; ``step``: as a step of a running job; ``job``: as a new job.
        python: The Python interpreter that runs the program; a node without this interpreter uses python3.
        options: The srun options that select the running job, or that describe the new job.
    """

    kind: Literal["here", "ssh", "step", "job"]
    python: str = sys.executable
    options: tuple[str, ...] = ()

    @property
    def uses_slurm(self) -> bool:
        """Whether Slurm runs the program, so that one command reaches several nodes."""
        return self.kind in {"step", "job"}

    def command(self, nodes: Sequence[str], minutes: int = 2) -> list[str]:
        """Return the command that runs a program on nodes.

        Args:
            nodes: The names of the nodes; ssh and the local host can run the program on one node only.
            minutes: The time limit of a new job, in minutes.
        """
        if self.kind == "here":
            return [sys.executable, "-IS", "-"]
        # the job's Python if the node has it
        python = ["sh", "-c", 'command -v "$0" >/dev/null 2>&1 && exec "$0" -IS -; exec python3 -IS -', self.python]
        if self.kind == "ssh":
            return [*_SSH, "--", *nodes, shlex.join(python)]
        node_options = [f"--nodelist={','.join(nodes)}", f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}"]
        # a failure on one node must not end the tasks on other nodes
        task_options = ["--ntasks-per-node=1", "--cpus-per-task=1", "--mpi=none", "--kill-on-bad-exit=0", "--wait=0"]
        job_options = ["--job-name=hpcrun-cleanup", f"--time={minutes}", "--immediate=5"] if self.kind == "job" else []
        return ["srun", "--quiet", *job_options, *self.options, *node_options, *task_options, "--chdir=/", *python]


def local_transport() -> Transport:
    """Return the transport to this host."""
    return Transport("here")


def ssh_transport(python: str) -> Transport:
    """Return the transport to a node that accepts ssh logins of this user without a password."""
    return Transport("ssh", python)


def step_transport(python: str, job_id: str) -> Transport:
    """Return the transport to the nodes of a running Slurm job: a step that overlaps the job's other steps."""
    return Transport("step", python, (f"--jobid={job_id}", "--overlap", "--mem=0"))


def job_transport(python: str, options: Sequence[str]) -> Transport:
    """Return the transport to nodes of a Slurm cluster through a short new job, which must start at once."""
    return Transport("job", python, tuple(options))
