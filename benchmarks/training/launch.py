"""Starting the programs of this folder on ranks, here or on the hosts of a Slurm cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
LIMIT = 1200  # seconds; a job that takes longer hangs


class JobError(Exception):
    """A job that failed, with the end of what it said."""


@dataclass(frozen=True)
class Launcher:
    """How ranks start.

    Args:
        words: The launcher's command, without the number of ranks.
        python: What runs the program.
        environment: The job's.
    """

    words: tuple[str, ...]
    python: str
    environment: dict[str, str] = field(default_factory=dict)

    def __call__(self, ranks: int, program: str, *argv: object, **settings: str) -> dict[str, Any]:
        """Run a program of this folder to its end.

        Args:
            ranks: How many.
            program: Its file's name.
            *argv: Its arguments.
            **settings: Environment variables besides.

        Returns:
            What rank 0 printed as JSON.

        Raises:
            JobError: It failed, or takes too long.
        """
        said = f"{ranks} x {program} {' '.join(map(str, argv))} {' '.join(f'{k}={v}' for k, v in settings.items())}"
        print(f"... {said}", file=sys.stderr, flush=True)
        command = [*self.words, "-n", str(ranks), self.python, str(HERE / program), *map(str, argv)]
        environment = {**os.environ, **self.environment, "PYTHONPATH": str(ROOT), **settings}
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=environment, **pipes) as process:
            try:
                out, err = process.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                raise JobError(f"{said} takes longer than {LIMIT} s") from None
            finally:
                process.terminate()  # launchers pass it on to the ranks; on one that has ended it does nothing
        lines = [line for line in out.splitlines() if line.startswith("{")]
        if process.returncode or not lines:
            raise JobError(f"{said} ended with {process.returncode}:\n{(err or out)[-2000:]}")
        return json.loads(lines[-1])


def here(virtual_environment: Path = BIN.parent) -> Launcher:
    """Return MPICH's mpiexec on this machine; ranks get a thread each, however many cores there are.

    Args:
        virtual_environment: Where mpiexec and Python are.
    """
    bin_ = virtual_environment / "bin"
    return Launcher((str(bin_ / "mpiexec"),), str(bin_ / "python"), {"SLURM_CPUS_PER_TASK": "1"})


def across(environment: dict[str, str]) -> Launcher:
    """Return srun with a rank on each host, as the site `slurm` starts them.

    Args:
        environment: What makes Slurm's commands find the cluster.
    """
    srun = ("srun", "--mpi=pmi2", "--ntasks-per-node=1", "--cpus-per-task=1")
    return Launcher(srun, sys.executable, {**environment, "MPIR_CVAR_CH4_NETMOD": "ofi"})
