"""Staging: the data that each node of a job copies to its local disk (``--stage-in``, ``--unpack``)."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun import declared_options, paths
from hpcrun.errors import HpcrunError
from hpcrun.job_options import STAGED_PLACEHOLDER
from hpcrun.workload_data import is_certainly_missing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpcrun.job_options import JobOptions
    from hpcrun.sites.site_model import Site
    from hpcrun.workload import Workload

_ARCHIVE_NAME = r"(?s)(.+)\.(?:tar|tar\.\w+|tgz|tbz2?|txz|tzst|zip)"

_END_OF_NAME = re.compile(r"""$|[\s,:;&|<>()'"]""")
"""Pattern of the text after a name in code, or in a list of paths."""
_EXPANDED_CHARACTER = r"[*?[$`{]"
"""Characters of a pattern or variable that a shell or a program would expand."""


def name_copies(job: JobOptions) -> dict[str, str]:
    """Return the name of the copy for each path that a job stages; the copy of an archive is a folder.

    Raises:
        HpcrunError: The name of an archive does not end in the suffix of an archive.
    """
    return {path: _name_copy(option, path) for option, path in _list_paths(job)}


def _list_paths(job: JobOptions) -> list[tuple[str, str]]:
    paths_by_option = {"--stage-in": job.stage_in, "--unpack": job.unpack}
    return [(option, os.fspath(path)) for option, paths in paths_by_option.items() for path in paths]


def _name_copy(option: str, path: str) -> str:
    file_name = Path(path).name
    if option == "--stage-in":
        return file_name
    if not (match := re.fullmatch(_ARCHIVE_NAME, file_name)):
        hint = f"archives end in .tar, .tar.gz, .tar.zst, .tgz, .zip or the like; --stage-in={path} copies any file"
        raise HpcrunError(f"{option}={path}: not the name of an archive", hint=hint)
    return match[1]


def local_folder(site: Site) -> str:
    """Return the site's folder on the node-local disk, with variables as ``${NAME}``; empty if the site names none."""
    return re.sub(r"\$(\w+)", r"${\1}", site.local_scratch[0]) if site.local_scratch else ""


def resolve_paths(job: JobOptions, site: Site) -> dict[str, Any]:
    """Return the options ``stage_in`` and ``unpack`` with absolute paths.

    Raises:
        HpcrunError: The site names no node-local disk, the name of a copy would be empty, or two copies would have the
            same name.
    """
    absolute_paths = {path: os.path.abspath(paths.expand_user(path)) for _, path in _list_paths(job)}  # noqa: PTH100 - keeps symbolic links
    paths_by_name: dict[str, str] = {}
    for option, path in _list_paths(job):
        if not site.local_scratch:
            message = f"{option}={path}: site {site.name} names no node-local disk (site key local_scratch)"
            raise HpcrunError(message, hint='set it in the site file: local_scratch = ["/local/${USER}"]')
        name = _name_copy(option, absolute_paths[path])
        if name in {"", ".", ".."}:
            raise HpcrunError(f"{option}={path}: the copy would have no name", hint="name a file or folder below it")
        if name in paths_by_name:
            hint = "stage their parent folder, or rename one of them"
            raise HpcrunError(
                f"{option}={path}: the copy's name would be {name}, as that of {paths_by_name[name]}", hint=hint
            )
        paths_by_name[name] = path
    return {
        name: tuple(absolute_paths[os.fspath(path)] for path in getattr(job, name)) for name in ("stage_in", "unpack")
    }


def find_missing_paths(job: JobOptions, shared_path: Path | None) -> HpcrunError | None:
    """Return the error about a staged path that certainly does not exist; None if there is none."""
    for option, path in _list_paths(job):
        if is_certainly_missing(Path(path), shared_path):
            message = f"{option}={path}: there is no such file or folder"
            return HpcrunError(message, hint="name a path that the nodes see, relative to the current directory")
    return None


def find_unknown_copies(job: JobOptions, argv: Iterable[str]) -> list[str]:
    """Return the copies that arguments name, such as ``{staged}/images``, and that the job does not create.

    Args:
        job: The job, with absolute paths.
        argv: The arguments of the program, or of all tasks.
    """
    names = {_name_copy(option, path) for option, path in _list_paths(job)}
    words = dict.fromkeys(word for word in argv if STAGED_PLACEHOLDER in word)
    if not names:
        return [STAGED_PLACEHOLDER] if words else []
    unknown_copies: dict[str, None] = {}
    for part in (rest.partition("/")[0] for word in words for rest in word.split(f"{STAGED_PLACEHOLDER}/")[1:]):
        is_known = any(part.startswith(name) and _END_OF_NAME.match(part, len(name)) for name in names)
        if part and not is_known and not re.search(_EXPANDED_CHARACTER, part):
            unknown_copies[f"{STAGED_PLACEHOLDER}/{part}"] = None
    return list(unknown_copies)


def set_data_option(program: Workload, args: tuple[str, ...], names: dict[str, str]) -> tuple[str, ...]:
    """Return a workload's arguments with its data option set to the copy, if the job stages only the workload's data.

    Args:
        program: The workload.
        args: The workload's arguments; they are not changed if they name data that are not staged.
        names: The name of the copy, by staged path.
    """
    if not program.data or program.options is None or len(names) != 1:
        return args
    ((path, name),) = names.items()
    option = program.data.option
    option_value = vars(declared_options.parse(program.argument, program.options, args))[option.replace("-", "_")]
    if option_value and os.path.abspath(paths.expand_user(option_value)) != path:  # noqa: PTH100 - as in resolve_paths
        return args
    return (*args, f"--{option}={STAGED_PLACEHOLDER}/{name}")
