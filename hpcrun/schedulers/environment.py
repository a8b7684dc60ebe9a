"""The environment that Slurm's commands get."""

from __future__ import annotations

import os
from pathlib import Path

from hpcrun.errors import HpcrunError

# what tells a client where its Slurm is, and is no option of a job
_KEPT = {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT"}


def neutralised() -> list[str]:
    """Return the variables that would silently beat the script (SBATCH_*) or belong to an enclosing job (SLURM_*)."""
    prefixes = ("SBATCH_", "SLURM_", "SLURMD_", "SQUEUE_", "SCANCEL_", "SACCT_")
    return sorted(name for name in os.environ if name.startswith(prefixes) and name not in _KEPT)


def clean() -> dict[str, str]:
    """Return this process's environment without them."""
    left_out = set(neutralised())
    return {name: value for name, value in os.environ.items() if name not in left_out}


def require_configuration() -> None:
    """Refuse to ask a Slurm whose configuration is gone: its commands would wait for it for a minute.

    Raises:
        HpcrunError: SLURM_CONF names no file.
    """
    conf = os.environ.get("SLURM_CONF")
    if conf and not Path(conf).exists():
        hint = "unset SLURM_CONF, or start that cluster"
        raise HpcrunError(f"SLURM_CONF={conf} is not there", hint=hint, exit_code=1)
