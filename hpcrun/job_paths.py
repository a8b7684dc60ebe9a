"""Paths that hpcrun needs before a job runs: the Python interpreter, and the folder of run directories."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from hpcrun.sites.site_model import Site


def find_interpreter(site: Site) -> str:
    """Return the job's Python interpreter: a path, or only a name if the job activates an environment that contains it.

    Raises:
        HpcrunError: The path contains a variable that is not set.
    """
    if site.python:
        return _expand(site.python, "python")
    return sys.executable if site.python_key == "python" else "python3"


def find_run_root(site: Site, account: str | None) -> Path:
    """Return the folder of run directories, whose path may contain the job's account.

    Raises:
        HpcrunError: The site's path contains a variable that is not set.
    """
    text = os.environ.get("HPCRUN_RUN_ROOT") or site.run_root
    account_variable = {"SLURM_JOB_ACCOUNT": account.lower()} if account else {}  # Slurm sets the account in lower case
    return Path(_expand(text, "run_root", **account_variable)).absolute()


def _expand(text: str, key: str, **extra_variables: str) -> str:
    """Expand ``~`` and variables in a path, with the environment of this process and additional variables."""
    variables = {**os.environ, **extra_variables}
    if "USER" not in variables:
        variables["USER"] = paths.user_name()
    path = Template(paths.expand_user(text)).safe_substitute(variables)
    if "$" in path:
        hint = "give --account=NAME" if "SLURM_JOB_ACCOUNT" in path else "set it, or change the site file"
        if key == "run_root":
            hint += "; for a dry run on another machine, set HPCRUN_RUN_ROOT=/tmp/runs"
        raise HpcrunError(f"{key} = {text!r} names a variable that is not set", hint=hint)
    return path
