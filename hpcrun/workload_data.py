"""The data of a workload: which option or variable names their folder, and whether they are certainly missing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import options, paths
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpcrun.workload import Workload


@dataclass(frozen=True)
class Data:
    """The table ``[data]`` of ``workload.toml``.

    Attributes:
        option: The option that names the folder.
        variable: An environment variable that names it without the option.
        required: Whether the program needs the folder.
        unless: A flag with which the program needs no data.
    """

    option: str
    variable: str = ""
    required: bool = False
    unless: str = ""


def find_missing(
    program: Workload,
    args: tuple[str, ...],
    environment: Mapping[str, str],
    start: Path,
    *,
    shared: Path | None,
    knows_variables: bool,
) -> HpcrunError | None:
    """Return the error for data that a job would certainly not find; None if they exist or this host cannot know.

    Args:
        program: The workload.
        args: Its arguments.
        environment: The variables of the job, as far as they are known.
        start: The working directory of the job.
        shared: A path that all of the job's nodes see; None if it runs on this host.
        knows_variables: Whether no module sets further variables.
    """
    data = program.data
    if data is None or program.options is None:
        return None
    parsed = vars(options.parse(program.name, program.options, args))
    if data.unless and parsed[data.unless.replace("-", "_")]:
        return None
    given, source = parsed[data.option.replace("-", "_")], f"--{data.option}"
    if not given and data.variable:
        given, source = environment.get(data.variable), f"${data.variable}"
    without = f", or hpcrun submit {program.name} -- --{data.unless}" if data.unless else ""
    hint = f"hpcrun submit {program.name} -- --{data.option}=FOLDER{without}"
    if not given:
        named = " nor ".join(filter(None, [f"--{data.option}", f"${data.variable}" if data.variable else ""]))
        what = f"{program.name} has no data: {'neither ' * (' nor ' in named)}{named} is set"
        return HpcrunError(what, hint=hint) if data.required and (knows_variables or not data.variable) else None
    folder = Path(start, paths.expand_user(os.path.expandvars(given)))
    if "{staged}" in given or not is_certainly_missing(folder, shared):
        return None
    return HpcrunError(f"{program.name}: {source}={given}: there is no such folder", hint=hint)


def is_certainly_missing(path: Path, shared: Path | None) -> bool:
    """Return whether a file or folder does not exist on the job's nodes either; this host may lack their file systems.

    Args:
        path: Its path.
        shared: A path that all of the job's nodes see; None if the job runs on this host.
    """
    return "$" not in str(path) and not path.exists() and (shared is None or _is_beside(path, shared))


def _is_beside(folder: Path, shared: Path) -> bool:
    near = next(parent for parent in shared.parents if parent.exists())
    return folder.parent.is_dir() and folder.parent.stat().st_dev == near.stat().st_dev
