"""Slurm's commands."""

from __future__ import annotations

import subprocess

from hpcrun.errors import HpcrunError
from hpcrun.schedulers.environment import command_environment, require_slurm_conf


def run_slurm(command: list[str], conf: str | None, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a Slurm command.

    Args:
        command: The program and its arguments.
        conf: The slurm.conf of the Slurm to query; if None, SLURM_CONF or the default of Slurm.
        timeout: In seconds; None for no limit.

    Raises:
        HpcrunError: The slurm.conf or the program does not exist.
    """
    require_slurm_conf(conf)
    try:
        return subprocess.run(
            command, env=command_environment(conf), capture_output=True, text=True, check=False, timeout=timeout
        )
    except FileNotFoundError:
        hint = "use a login node of the cluster, or --site local"
        raise HpcrunError(f"{command[0]} is not on PATH", hint=hint, exit_code=1) from None


def output_lines(command: list[str], conf: str | None, timeout: float = 60) -> list[str] | None:
    """Return the output lines of a Slurm command; None if it fails.

    Args:
        command: The program and its arguments.
        conf: The slurm.conf of the Slurm to query; if None, SLURM_CONF or the default of Slurm.
        timeout: In seconds.
    """
    try:
        answer = run_slurm(command, conf, timeout)
    except (HpcrunError, OSError, subprocess.TimeoutExpired):
        return None
    return None if answer.returncode else answer.stdout.splitlines()
