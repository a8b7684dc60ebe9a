"""Data that each node of a job copies to its local disk (``--stage-in``, ``--unpack``), with ``shell/stage.bash``."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun import options, paths
from hpcrun.errors import HpcrunError
from hpcrun.job_options import STAGED
from hpcrun.workload_data import is_certainly_missing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpcrun.job_options import JobOptions
    from hpcrun.sites.model import Site
    from hpcrun.workload import Workload

_ARCHIVE = re.compile(r"(.+)\.(?:tar|tar\.\w+|tgz|tbz2?|txz|tzst|zip)", re.DOTALL)

_END_OF_NAME = re.compile(r"""$|[\s,:;&|<>()'"]""")
"""What may follow a name in code, or in a list of paths."""
_PATTERN = re.compile(r"[*?[$`{]")
"""What a shell or a program would expand."""


def name_copies(job: JobOptions) -> dict[str, str]:
    """Return the paths that a job stages, with the names of the copies: an archive's is that of its folder.

    Raises:
        HpcrunError: An archive's name does not end like one.
    """
    return {path: _name_copy(flag, path) for flag, path in _list_paths(job)}


def _list_paths(job: JobOptions) -> list[tuple[str, str]]:
    paths_of = {"--stage-in": job.stage_in, "--unpack": job.unpack}
    return [(flag, os.fspath(path)) for flag, given in paths_of.items() for path in given]


def _name_copy(flag: str, path: str) -> str:
    name = Path(path).name
    if flag == "--stage-in":
        return name
    if not (match := _ARCHIVE.fullmatch(name)):
        hint = f"archives end in .tar, .tar.gz, .tar.zst, .tgz, .zip or the like; --stage-in={path} copies any file"
        raise HpcrunError(f"{flag}={path}: not the name of an archive", hint=hint)
    return match[1]


def local_folder(site: Site) -> str:
    """Return the folder of the node-local disk, with variables as ``${NAME}``; empty if the site names none."""
    return re.sub(r"\$(\w+)", r"${\1}", site.local_scratch[0]) if site.local_scratch else ""


def resolve_paths(job: JobOptions, site: Site) -> dict[str, Any]:
    """Return the options ``stage_in`` and ``unpack`` with absolute paths.

    Raises:
        HpcrunError: The site names no node-local disk, or the name of a copy would be empty or that of another copy.
    """
    absolute_paths = {path: os.path.abspath(paths.expand_user(path)) for _, path in _list_paths(job)}  # noqa: PTH100 - keeps symbolic links
    seen: dict[str, str] = {}
    for flag, path in _list_paths(job):
        if not site.local_scratch:
            what = f"{flag}={path}: site {site.name} names no node-local disk (site key local_scratch)"
            raise HpcrunError(what, hint='set it in the site file: local_scratch = ["/local/${USER}"]')
        name = _name_copy(flag, absolute_paths[path])
        if name in {"", ".", ".."}:
            raise HpcrunError(f"{flag}={path}: the copy would have no name", hint="name a file or folder below it")
        if name in seen:
            hint = "stage the folder above them, or rename one of them"
            raise HpcrunError(f"{flag}={path}: the copy's name would be {name}, as that of {seen[name]}", hint=hint)
        seen[name] = path
    return {
        name: tuple(absolute_paths[os.fspath(path)] for path in getattr(job, name)) for name in ("stage_in", "unpack")
    }


def find_missing(job: JobOptions, shared: Path | None) -> HpcrunError | None:
    """Return the error for a path that certainly does not exist; see `workload_data.find_missing`."""
    for flag, path in _list_paths(job):
        if is_certainly_missing(Path(path), shared):
            what = f"{flag}={path}: there is no such file or folder"
            return HpcrunError(what, hint="name one that the nodes see; paths are relative to the current folder")
    return None


def find_unknown_copies(job: JobOptions, argv: Iterable[str]) -> list[str]:
    """Return the paths of copies that arguments name, such as ``{staged}/images``, and that the job does not make.

    Args:
        job: The job, with absolute paths.
        argv: The arguments of the program, perhaps those of several tasks.
    """
    names = {_name_copy(flag, path) for flag, path in _list_paths(job)}
    words = dict.fromkeys(word for word in argv if STAGED in word)
    if not names:
        return [STAGED] if words else []
    unknown: dict[str, None] = {}
    for part in (rest.partition("/")[0] for word in words for rest in word.split(f"{STAGED}/")[1:]):
        known = any(part.startswith(name) and _END_OF_NAME.match(part, len(name)) for name in names)
        if part and not known and not _PATTERN.search(part):
            unknown[f"{STAGED}/{part}"] = None
    return list(unknown)


def set_data_option(program: Workload, args: tuple[str, ...], names: dict[str, str]) -> tuple[str, ...]:
    """Return a workload's arguments with its data option set to the copy, if its data are all that is staged.

    Args:
        program: The workload.
        args: Its arguments; if they name other data, they stay.
        names: The staged path, with the name of the copy.
    """
    if not program.data or program.options is None or len(names) != 1:
        return args
    ((path, name),) = names.items()
    option = program.data.option
    given = vars(options.parse(program.name, program.options, args))[option.replace("-", "_")]
    if given and os.path.abspath(paths.expand_user(given)) != path:  # noqa: PTH100 - as in resolve_paths
        return args
    return (*args, f"--{option}={STAGED}/{name}")
