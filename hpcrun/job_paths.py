"""The paths that are needed before a job runs: its Python interpreter and the folder of run directories."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from hpcrun.sites.model import Site


def find_interpreter(site: Site) -> str:
    """Return the job's interpreter: only its name if the job activates an environment that contains it.

    Raises:
        HpcrunError: Its path contains a variable that is not set.
    """
    if site.python:
        return _expand(site.python, "python")
    return sys.executable if site.python_key == "python" else "python3"


def find_run_root(site: Site, account: str | None) -> Path:
    """Return the folder of run directories; its path may contain the job's account.

    Raises:
        HpcrunError: It contains a variable that is not set.
    """
    text = os.environ.get("HPCRUN_RUN_ROOT") or site.run_root
    own = {"SLURM_JOB_ACCOUNT": account.lower()} if account else {}  # as in the job: Slurm has small letters
    return Path(_expand(text, "run_root", **own)).absolute()


def _expand(text: str, key: str, **more: str) -> str:
    """Expand ``~`` and variables, of this process and more, in a path that is needed before the job runs."""
    path = Template(paths.expand_user(text)).safe_substitute({"USER": paths.user_name(), **os.environ, **more})
    if "$" in path:
        hint = "give --account=NAME" if "SLURM_JOB_ACCOUNT" in path else "set it, or change the site file"
        if key == "run_root":
            hint += "; for a dry run on another machine, HPCRUN_RUN_ROOT=/tmp/runs names a folder in its place"
        raise HpcrunError(f"{key} = {text!r} names a variable that is not set", hint=hint)
    return path
