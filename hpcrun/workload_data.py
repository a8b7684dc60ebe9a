"""The data of a workload: the option or variable that names their folder, and a check whether they are missing."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import declared_options, paths
from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen
from hpcrun.job_options import STAGED_PLACEHOLDER
from hpcrun.option_rules import format_value

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from hpcrun.workload import Workload


_NO_FOLDER = "there is no such folder"
_NO_LAYOUT = "the folder has none of"

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_PLACEHOLDER = re.compile(r"\{([\w-]+)\}")
"""The name of an option in a layout, as in {split}-*-of-*."""

_MAX_FOLDERS = 50
"""Number of subfolders up to which they are searched for data: a data set, or a home folder, may have thousands."""


@frozen
class Data:
    """The table ``[data]`` of ``workload.toml``.

    Attributes:
        option: The option that names the data folder.
        variable: The environment variable that names the data folder if the option is not given.
        defaults: Default data folders; the first one whose variables are all set is used.
        required: Whether the program needs the data folder.
        from_run: An option that names a run, whose data folder is used if `option` is not given.
        unless: A flag with which the program needs no data, or an option with such values: dataset=digits|synthetic
            (flags are true or false).
        file: A file in the data folder that the program needs under the condition ``file_for``.
        file_for: An option and its value, such as dataset=mnist, with which the program needs ``file``.
        files: Whether the option may also name a file in place of the folder.
        layouts: Patterns of names, such as train-*-of-* or */data_1, of which at least one must match in the data
            folder; a layout of several patterns, such as train + val*, needs all of them, and {split} is the value of
            the option split.
    """

    option: str
    variable: str = ""
    defaults: tuple[str, ...] = ()
    required: bool = False
    from_run: str = ""
    unless: str = ""
    file: str = ""
    file_for: str = ""
    files: bool = False
    layouts: tuple[str, ...] = ()

    def require_options(self, names: Collection[str]) -> None:
        """Check that the keys name options of the workload.

        Args:
            names: The names of the workload's options.

        Raises:
            ValueError: A key or a layout names no option, or a key has an invalid value.
        """
        file_option, separator, _ = self.file_for.partition("=")
        if bool(self.file) != bool(separator):
            raise ValueError('data.file needs data.file_for = "OPTION=VALUE", and the other way round')
        for key, option in {
            "option": self.option,
            "unless": self.unless.partition("=")[0],
            "from_run": self.from_run,
            "file_for": file_option,
        }.items():
            if option and option not in names:
                raise ValueError(f"data.{key} = {option!r} names none of its options: {', '.join(names)}")
        for layout in self.layouts:
            if unknown := [name for name in _PLACEHOLDER.findall(layout) if name not in names]:
                place = f"{{{unknown[0]}}} in data.layouts"
                raise ValueError(f"{place} names none of its options: {', '.join(names)}")

    def is_unneeded(self, values: Mapping[str, object]) -> bool:
        """Return whether the program needs no data with these values of its options."""
        option, separator, unneeded_for = self.unless.partition("=")
        if not separator:
            return bool(option and values[option])
        return format_value(values[option]) in unneeded_for.split("|")

    @property
    def argument_without_data(self) -> str:
        """An argument with which the program needs no data, such as ``--synthetic``; empty if there is none."""
        option, _, value = self.unless.partition("|")[0].partition("=")
        flags = {"": f"--{option}", "true": f"--{option}", "false": f"--no-{option}"}
        return flags.get(value, f"--{option}={value}") if option else ""

    def default_folder(self, environment: Mapping[str, str]) -> str:
        """Return the first of `defaults` whose variables are set, with variables expanded; empty if there is none."""
        for folder in self.defaults:
            if all(name in environment for name in _VARIABLE.findall(folder)):
                return _VARIABLE.sub(lambda name: environment[name[1]], folder)
        return ""


def find_missing_data(
    program: Workload,
    args: tuple[str, ...],
    environment: Mapping[str, str],
    start: Path,
    *,
    shared_path: Path | None,
    are_variables_known: bool,
) -> HpcrunError | None:
    """Return the error about data that a job would certainly not find; None if the data may exist.

    Args:
        program: The workload.
        args: The arguments of the workload.
        environment: The environment variables of the job, as far as they are known.
        start: The working directory of the job.
        shared_path: A path that all nodes of the job can access; None if the job runs on this host.
        are_variables_known: Whether all environment variables of the job are known, because no module sets any.
    """
    data = program.data
    if data is None or program.options is None:
        return None
    arguments = vars(declared_options.parse(program.argument, program.options, args))
    values = {option: arguments[option.replace("-", "_")] for option in program.options}
    if data.is_unneeded(values):
        return None
    folder_name, name_source = values[data.option], f"--{data.option}"
    if not folder_name and data.variable:
        folder_name, name_source = environment.get(data.variable), f"${data.variable}"
    command = f"hpcrun submit {program.argument} --"
    placeholder = "FILE" if data.files else "FOLDER"
    alternative = f", or {command} {data.argument_without_data}" if data.unless else ""
    hint = f"{command} --{data.option}={placeholder}{alternative}"
    if not folder_name and data.required:
        unset_text = f"neither --{data.option} nor ${data.variable} is" if data.variable else f"--{data.option} is not"
        message = f"{program.name} has no data: {unset_text} set"
        return HpcrunError(message, hint=hint) if are_variables_known or not data.variable else None
    folder = _expand(start, folder_name or data.default_folder(environment))
    if not folder:
        return None
    fault = _find_fault(data, values, folder, shared_path) if folder_name else ""
    if fault != _NO_FOLDER and (file := _find_missing_file(data, values, folder, shared_path)):
        message = f"{program.name}: --{data.file_for} needs {file}, which does not exist"
        hint = f"{command} --{data.file_for} --{data.option}=FOLDER, or omit --{data.file_for}"
        return HpcrunError(message, hint=hint)
    if fault == _NO_FOLDER and data.files:
        fault = "there is no such file or folder"
    if fault.startswith(_NO_LAYOUT) and any(" + " in layout and "*-of-*" not in layout for layout in data.layouts):
        command = f"hpcrun data build {folder_name} RECORDS --validation 0.1"
        hint = f"{command} makes shards of its images, for --{data.option}=RECORDS"
    return HpcrunError(f"{program.name}: {name_source}={folder_name}: {fault}", hint=hint) if fault else None


def _expand(start: Path, name: str) -> Path | None:
    """Return the path of a folder with variables expanded; None if it has no name or a variable is unknown."""
    folder = Path(start, paths.expand_user(os.path.expandvars(name)))
    return None if not name or "$" in str(folder) or STAGED_PLACEHOLDER in str(folder) else folder


def _find_missing_file(data: Data, values: Mapping[str, object], folder: Path, shared_path: Path | None) -> Path | None:
    """Return the file ``data.file`` if the options require it and it is certainly missing, else None."""
    option, _, value = data.file_for.partition("=")
    file = folder / data.file
    if not data.file or format_value(values[option]) != value or not _is_missing(file):
        return None
    return file if shared_path is None or _is_shared(folder, shared_path) else None


def _device(path: Path) -> int:
    """Return the device number of the file system of a path, or of the nearest existing parent folder."""
    return next(parent for parent in (path, *path.parents) if parent.exists()).stat().st_dev


def _is_shared(folder: Path, shared_path: Path) -> bool:
    """Return whether a folder, which exists or is in the home directory, is on the file system of a shared path."""
    existing_path = next(
        (path for path in (folder, Path(paths.home_folder())) if path.exists() and folder.is_relative_to(path)), None
    )
    return existing_path is not None and _device(existing_path) == _device(shared_path)


def is_certainly_missing(path: Path, shared_path: Path | None) -> bool:
    """Return whether a file or folder certainly does not exist on the job's nodes, even if this host cannot see it.

    Args:
        path: The path of the file or folder.
        shared_path: A path that all nodes of the job can access; None if the job runs on this host.
    """
    return (
        "$" not in str(path)
        and _is_missing(path)
        and (shared_path is None or _is_on_same_file_system(path, shared_path))
    )


def _is_missing(path: Path) -> bool:
    """Return whether a path does not exist; False if this user may not read its parent."""
    try:
        path.stat()
    except PermissionError:
        return False
    except (OSError, ValueError):  # the path is invalid, for example too long
        return True
    return False


def _find_fault(data: Data, values: Mapping[str, object], folder: Path, shared_path: Path | None) -> str:
    """Return the reason why a folder or file certainly contains no data; empty if it may contain data."""
    if is_certainly_missing(folder, shared_path):
        return _NO_FOLDER
    is_visible = shared_path is None or _is_shared(folder, shared_path)
    try:
        entries = _list(folder)
    except NotADirectoryError:
        fault = _find_file_fault(data, folder)
    except OSError as error:  # the path may be accessible only on the compute nodes
        return str(error.strerror) if shared_path is None else ""
    else:
        fault = _find_layout_fault(data, values, entries) if entries else "the folder is empty"
    return fault if is_visible else ""


def _find_file_fault(data: Data, path: Path) -> str:
    """Return the reason why a path that is not a folder contains no data; empty if it may contain data."""
    try:
        size = path.stat().st_size
    except OSError:  # a name below a file
        return _NO_FOLDER
    if not data.files:
        return "a file, not a folder"
    return "" if size else "the file is empty"


def _find_layout_fault(data: Data, values: Mapping[str, object], entries: Sequence[os.DirEntry[str]]) -> str:
    """Return the reason why the entries of a folder are not those of the data; empty if they may be."""
    layouts = [_insert_values(layout, values) for layout in data.layouts]
    flat_first = sorted(layouts, key=lambda layout: layout.count("/"))
    has_layout = any(all(_may_have(entries, pattern) for pattern in layout.split(" + ")) for layout in flat_first)
    return f"{_NO_LAYOUT} {', '.join(layouts)}" if layouts and not has_layout else ""


def _may_have(entries: Sequence[os.DirEntry[str]], pattern: str) -> bool:
    """Return whether an entry of a folder matches a pattern, or for */data_1 one of its subfolders.

    Subfolders that cannot be listed are skipped; if there are too many to search, they may have a match.
    """
    *folder_patterns, name_pattern = pattern.split("/")
    searched = 0
    for folder_pattern in folder_patterns:
        matches = (entry for entry in entries if fnmatchcase(entry.name, folder_pattern) and _is_folder(entry))
        subfolders = list(islice(matches, _MAX_FOLDERS + 1))
        searched += len(subfolders)
        if searched > _MAX_FOLDERS:
            return True
        entries = [entry for folder in subfolders for entry in _list_readable(folder)]
    return any(fnmatchcase(entry.name, name_pattern) for entry in entries)


def _list(folder: os.PathLike[str]) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)


def _list_readable(folder: os.DirEntry[str]) -> list[os.DirEntry[str]]:
    """Return the entries of a folder; empty if this user cannot list it."""
    try:
        return _list(folder)
    except OSError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder, or a link to one; False if this user cannot know."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _insert_values(layout: str, values: Mapping[str, object]) -> str:
    """Return a layout in which the values of options replace their names in braces, as in {split}-*-of-*."""
    return _PLACEHOLDER.sub(lambda name: format_value(values[name[1]]), layout)


def _is_on_same_file_system(folder: Path, shared_path: Path) -> bool:
    return folder.parent.exists() and _device(folder.parent) == _device(shared_path.parent)
