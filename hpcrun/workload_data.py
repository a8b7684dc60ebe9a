"""The data of a workload: which option or variable names their folder, and whether they are certainly missing."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import options, paths
from hpcrun.errors import HpcrunError
from hpcrun.job_options import STAGED

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from hpcrun.workload import Workload


_VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True)
class Data:
    """The table ``[data]`` of ``workload.toml``.

    Attributes:
        option: The option that names the folder.
        variable: An environment variable that names it without the option.
        defaults: Folders to use if neither the option nor the variable names one: the first whose variables are set.
        required: Whether the program needs the folder.
        from_run: An option that names a run: without `option`, the folder is that with which this run was trained.
        unless: A flag with which the program needs no data.
        file: A file in the folder that the program needs if an option has a value.
        file_for: That option and its value, such as dataset=mnist.
    """

    option: str
    variable: str = ""
    defaults: tuple[str, ...] = ()
    required: bool = False
    from_run: str = ""
    unless: str = ""
    file: str = ""
    file_for: str = ""

    def require_options(self, names: Collection[str]) -> None:
        """Require that the keys name options of the workload.

        Args:
            names: The options.

        Raises:
            ValueError: A key names no option, or has another form.
        """
        if isinstance(self.defaults, str):
            raise ValueError(f"data.defaults = {self.defaults!r}: expected a list of folders")  # noqa: TRY004 - as for the others
        for_option, equals, _ = self.file_for.partition("=")
        if bool(self.file) != bool(equals):
            raise ValueError('data.file needs data.file_for = "OPTION=VALUE", and the other way round')
        for key, option in {
            "option": self.option,
            "unless": self.unless,
            "from_run": self.from_run,
            "file_for": for_option,
        }.items():
            if option and option not in names:
                raise ValueError(f"data.{key} = {option!r} names none of its options: {', '.join(names)}")

    def default_folder(self, environment: Mapping[str, str]) -> str:
        """Return the first of `defaults` whose variables are set, with their values; empty if there is none."""
        for folder in self.defaults:
            if all(name in environment for name in _VARIABLE.findall(folder)):
                return _VARIABLE.sub(lambda name: environment[name[1]], folder)
        return ""


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
        shared: A path that all nodes of the job can access; None if it runs on this host.
        knows_variables: Whether no module sets further variables.
    """
    data = program.data
    if data is None or program.options is None:
        return None
    parsed = vars(options.parse(program.name, program.options, args))
    values = {option: parsed[option.replace("-", "_")] for option in program.options}
    if data.unless and values[data.unless]:
        return None
    given, source = values[data.option], f"--{data.option}"
    if not given and data.variable:
        given, source = environment.get(data.variable), f"${data.variable}"
    submit = f"hpcrun submit {program.name} --"
    hint = f"{submit} --{data.option}=FOLDER" + (f", or {submit} --{data.unless}" if data.unless else "")
    if not given and data.required:
        unset = f"neither --{data.option} nor ${data.variable} is" if data.variable else f"--{data.option} is not"
        what = f"{program.name} has no data: {unset} set"
        return HpcrunError(what, hint=hint) if knows_variables or not data.variable else None
    folder = _expand(start, given or data.default_folder(environment))
    if folder and given and is_certainly_missing(folder, shared):
        return HpcrunError(f"{program.name}: {source}={given}: there is no such folder", hint=hint)
    if folder and (file := _find_missing_file(data, values, folder, shared)):
        what = f"{program.name}: --{data.file_for} needs {file}, which does not exist"
        hint = f"{submit} --{data.file_for} --{data.option}=FOLDER, or omit --{data.file_for}"
        return HpcrunError(what, hint=hint)
    return None


def _expand(start: Path, name: str) -> Path | None:
    """Return the path of a folder; None without a name, and where only the job knows a part of it."""
    folder = Path(start, paths.expand_user(os.path.expandvars(name)))
    return None if not name or "$" in str(folder) or STAGED in str(folder) else folder


def _find_missing_file(data: Data, values: Mapping[str, object], folder: Path, shared: Path | None) -> Path | None:
    """Return the file that the program needs for these values of its options, if it is certainly missing."""
    option, _, value = data.file_for.partition("=")
    file = folder / data.file
    if not data.file or str(values[option]) != value or not _is_missing(file):
        return None
    return file if shared is None or _is_shared(folder, shared) else None


def _device(path: Path) -> int:
    """Return the file system of a path, or of the nearest folder above it that exists."""
    return next(parent for parent in (path, *path.parents) if parent.exists()).stat().st_dev


def _is_shared(folder: Path, shared: Path) -> bool:
    """Return whether an existing folder, or one of this user's home, is on the file system of a shared path."""
    known = next(
        (path for path in (folder, Path(paths.home_folder())) if path.exists() and folder.is_relative_to(path)), None
    )
    return known is not None and _device(known) == _device(shared)


def is_certainly_missing(path: Path, shared: Path | None) -> bool:
    """Return whether a file or folder does not exist on the job's nodes either; this host may lack their file systems.

    Args:
        path: Its path.
        shared: A path that all nodes of the job can access; None if the job runs on this host.
    """
    return "$" not in str(path) and _is_missing(path) and (shared is None or _is_beside(path, shared))


def _is_missing(path: Path) -> bool:
    """Return whether a path does not exist; False if this user cannot look, as where only the nodes have access."""
    try:
        path.stat()
    except PermissionError:
        return False
    except (OSError, ValueError):  # such as a name that is too long
        return True
    return False


def _is_beside(folder: Path, shared: Path) -> bool:
    return folder.parent.is_dir() and _device(folder.parent) == _device(shared.parent)
