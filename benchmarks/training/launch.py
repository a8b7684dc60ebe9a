"""Launchers of the programs in this folder, on this host or on the hosts of a Slurm cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROGRAM_FOLDER = Path(__file__).parent
BIN = Path(sys.executable).parent
TIMEOUT_SECONDS = 1200  # a job that takes longer has stalled


class JobError(Exception):
    """A failed job, with the end of its output."""


@dataclass(frozen=True)
class Launcher:
    """A launcher of ranks.

    Args:
        command_prefix: The launcher's command, without the number of ranks.
        python: The Python interpreter.
        environment: The job's environment.
    """

    command_prefix: tuple[str, ...]
    python: str
    environment: dict[str, str] = field(default_factory=dict)

    def __call__(self, ranks: int, program: str, *argv: object, **settings: str) -> dict[str, Any]:
        """Run a program of this folder and wait for it.

        Args:
            ranks: The number of ranks.
            program: The program's file name.
            *argv: The program's arguments.
            **settings: Additional environment variables.

        Returns:
            The JSON that rank 0 printed.

        Raises:
            JobError: The job failed or took too long.
        """
        job = f"{ranks} x {program} {' '.join(map(str, argv))} {' '.join(f'{k}={v}' for k, v in settings.items())}"
        print(f"... {job}", file=sys.stderr, flush=True)
        command = [*self.command_prefix, "-n", str(ranks), self.python, str(PROGRAM_FOLDER / program), *map(str, argv)]
        environment = {**os.environ, **self.environment, "PYTHONPATH": str(ROOT), **settings}
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=environment, **pipes) as process:
            try:
                out, err = process.communicate(timeout=TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                raise JobError(f"{job} takes longer than {TIMEOUT_SECONDS} s") from None
            finally:
                process.terminate()  # launchers forward SIGTERM to the ranks
        lines = [line for line in out.splitlines() if line.startswith("{")]
        if process.returncode or not lines:
            raise JobError(f"{job} ended with {process.returncode}:\n{(err or out)[-2000:]}")
        return json.loads(lines[-1])


def launch_on_this_host(virtual_environment: Path = BIN.parent) -> Launcher:
    """Return MPICH's mpiexec on this machine, with one thread per rank, regardless of the number of cores.

    Args:
        virtual_environment: The environment with mpiexec and Python.
    """
    bin_ = virtual_environment / "bin"
    return Launcher((str(bin_ / "mpiexec"),), str(bin_ / "python"), {"SLURM_CPUS_PER_TASK": "1"})


def launch_on_hosts(environment: dict[str, str]) -> Launcher:
    """Return srun with one rank per host, as on the site `slurm`.

    Args:
        environment: The environment with which Slurm's commands find the cluster.
    """
    srun = ("srun", "--mpi=pmi2", "--ntasks-per-node=1", "--cpus-per-task=1")
    return Launcher(srun, sys.executable, {**environment, "MPIR_CVAR_CH4_NETMOD": "ofi"})
