"""The environment variables of Slurm commands, which select the Slurm cluster to query."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from string import Template

from hpcrun import paths
from hpcrun.errors import HpcrunError

# These variables select a Slurm cluster, and are not options of a job.
_CLIENT_VARIABLES = {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT"}


def inherited_slurm_variables() -> list[str]:
    """Return the variables that would override the job script (SBATCH_*), or that belong to an outer job (SLURM_*)."""
    prefixes = ("SBATCH_", "SLURM_", "SLURMD_", "SQUEUE_", "SCANCEL_", "SACCT_")
    return sorted(name for name in os.environ if name.startswith(prefixes) and name not in _CLIENT_VARIABLES)


def command_environment(conf: str | None = None) -> dict[str, str]:
    """Return the environment of this process without `inherited_slurm_variables`.

    Args:
        conf: The slurm.conf of the Slurm cluster to query; None: SLURM_CONF, or Slurm's default.
    """
    removed_names = set(inherited_slurm_variables())
    environment = {name: value for name, value in os.environ.items() if name not in removed_names}
    return {**environment, "SLURM_CONF": conf} if conf else environment


def expand_slurm_conf(conf: str | None) -> str | None:
    """Expand ``~`` and variables in a site's ``slurm_conf``; variables that are not set stay unexpanded."""
    return Template(paths.expand_user(conf)).safe_substitute(os.environ) if conf else None


def require_slurm_conf(conf: str | None) -> None:
    """Raise an error if the slurm.conf does not exist, because Slurm's commands would retry for a minute.

    Args:
        conf: The slurm.conf of a site or a run; None: SLURM_CONF.

    Raises:
        HpcrunError: The file does not exist.
    """
    environment_path = os.environ.get("SLURM_CONF")
    path = conf or environment_path
    if path and not Path(path).exists():
        hint = "unset SLURM_CONF, or start that cluster"
        if path != environment_path:
            hint = "site key slurm_conf names this file: use a host on which it exists, or correct the site file"
        raise HpcrunError(f"SLURM_CONF={path} does not exist", hint=hint, exit_code=1)


def prefix_slurm_conf(conf: str | None, command: str) -> str:
    """Prefix a command line with SLURM_CONF if it would query a different Slurm cluster in the user's shell."""
    return f"SLURM_CONF={shlex.quote(conf)} {command}" if conf and conf != os.environ.get("SLURM_CONF") else command
