"""The environment that Slurm's commands get, and which Slurm they ask."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from string import Template

from hpcrun import paths
from hpcrun.errors import HpcrunError

# what tells a client where its Slurm is, and is no option of a job
_CLIENT_VARIABLES = {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT"}


def inherited_slurm_variables() -> list[str]:
    """Return the variables that would silently beat the script (SBATCH_*) or belong to an enclosing job (SLURM_*)."""
    prefixes = ("SBATCH_", "SLURM_", "SLURMD_", "SQUEUE_", "SCANCEL_", "SACCT_")
    return sorted(name for name in os.environ if name.startswith(prefixes) and name not in _CLIENT_VARIABLES)


def command_environment(conf: str | None = None) -> dict[str, str]:
    """Return this process's environment without them.

    Args:
        conf: The slurm.conf of the Slurm that is asked; where not given, SLURM_CONF or Slurm itself says which.
    """
    left_out = set(inherited_slurm_variables())
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, "SLURM_CONF": conf} if conf else kept


def env_arguments(conf: str | None) -> list[str]:
    """Return the arguments by which env(1) turns this process's environment into that of `command_environment`."""
    removed = [word for name in inherited_slurm_variables() for word in ("-u", name)]
    return [*removed, f"SLURM_CONF={conf}"] if conf else removed


def expand_slurm_conf(conf: str | None) -> str | None:
    """Return a site's ``slurm_conf`` with ``~`` and variables filled in; one that is not set stays as it is."""
    return Template(paths.expand_user(conf)).safe_substitute(os.environ) if conf else None


def require_slurm_conf(conf: str | None) -> None:
    """Refuse a configuration that is not there: Slurm's commands would wait for it for a minute.

    Args:
        conf: The slurm.conf of a site or a run; where not given, SLURM_CONF counts.

    Raises:
        HpcrunError: It is not there.
    """
    from_environment = os.environ.get("SLURM_CONF")
    named = conf or from_environment
    if named and not Path(named).exists():
        hint = "unset SLURM_CONF, or start that cluster"
        if named != from_environment:
            hint = "site key slurm_conf names it: work on a host that has it, or correct the site file"
        raise HpcrunError(f"SLURM_CONF={named} is not there", hint=hint, exit_code=1)


def prefix_slurm_conf(conf: str | None, command: str) -> str:
    """Return one of Slurm's commands as somebody has to type it here to ask the same Slurm."""
    return f"SLURM_CONF={shlex.quote(conf)} {command}" if conf and conf != os.environ.get("SLURM_CONF") else command
