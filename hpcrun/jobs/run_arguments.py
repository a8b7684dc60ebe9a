"""Replacement of names of runs, such as ``last``, in a workload's arguments by run directories."""

from __future__ import annotations

import shlex
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.errors import HpcrunError
from hpcrun.job_options import STAGED_PLACEHOLDER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.workload import Workload


_FIRST_BYTES = {".keras": b"PK\3\4", ".h5": b"\x89HDF"}
"""First bytes of the files of Keras models, zip archives and HDF5 files, by suffix."""


def find_run_or_file(word: str) -> Path:
    """Return the run directory or the model file that an argument names.

    Args:
        word: A job (id, name, ``last``, run directory), the file of a Keras model, or a folder with ``model.keras``,
            such as ``./models``. An argument without a slash names a job even if there is a folder with this name.

    Raises:
        HpcrunError: The argument names no run or model, or several runs.
    """
    path = Path(paths.expand_user(word))
    if path.suffix in _FIRST_BYTES:
        _require_model(path, word)
        return path.absolute()
    if ("/" in word or word == ".") and (path / "model.keras").is_file() and not (path / "job.json").exists():
        return path.resolve()
    try:
        return _select_run(word).directory
    except HpcrunError:
        if path.is_file():
            suffixes = " or ".join(_FIRST_BYTES)
            raise HpcrunError(f"{word} is not a Keras model", hint=f"models are files named *{suffixes}") from None
        raise


def _require_model(file: Path, word: str) -> None:
    """Require a file to be a Keras model, as far as its name and first bytes tell."""
    if not file.is_file():
        raise HpcrunError(f"there is no model {word}", hint="or name a job: hpcrun status lists them")
    try:
        with file.open("rb") as stream:
            first_bytes = stream.read(4)
    except OSError as error:
        raise HpcrunError(f"{word}: {error.strerror}", hint=f"chmod u+r {shlex.quote(str(file))}") from None
    expected_format = _FIRST_BYTES[file.suffix]
    if first_bytes != expected_format or file.name.endswith(".weights.h5"):
        content = "has only weights" if first_bytes == expected_format else "is not a Keras model"
        raise HpcrunError(f"{word} {content}", hint="give a file that model.save(...) wrote, or name a job")


def resolve_runs(program: Workload, args: Sequence[str]) -> tuple[str, ...]:
    """Replace the values of options of the type ``run`` by paths.

    Args:
        program: The workload.
        args: The workload's arguments.

    Raises:
        HpcrunError: No run matches a value.
    """
    declared_options = program.options or {}
    flags = {
        f"--{name}" for name, option in program.option_names.items() if declared_options[option].get("type") == "run"
    }
    resolved, expects_value = [], False
    for word in args:
        flag, equals, value = word.partition("=")
        if expects_value:
            resolved.append(str(find_run_or_file(word)))
        elif flag in flags and equals:
            resolved.append(f"{flag}={find_run_or_file(value)}")
        else:
            resolved.append(word)
        expects_value = not expects_value and word in flags
    return add_data_of_run(program, tuple(resolved))


def add_data_of_run(program: Workload, args: tuple[str, ...]) -> tuple[str, ...]:
    """Add the data folder with which a run was trained, if the arguments name the run and no data.

    Args:
        program: The workload; ``data.from_run`` of its description is the option that names the run.
        args: The workload's arguments, with the run's directory.
    """
    data = program.data
    if not data or not data.from_run:
        return args
    run = Path(_find_value(args, data.from_run) or "")
    if _find_value(args, data.option) or not (run / "job.json").exists():
        return args
    training_job = _select_run(str(run)).spec
    folder = _find_value(training_job.argv, data.option) or ""
    if STAGED_PLACEHOLDER in folder:
        folder = _find_original(folder, training_job.stage_in)
    if not folder:
        return args
    return (*args, f"--{data.option}={Path(training_job.directory, paths.expand_user(folder))}")


def _find_original(folder: str, staged_paths: Sequence[str]) -> str:
    """Return the folder from which a job made its copy, such as ``{staged}/records``; empty if it was an archive."""
    for path in staged_paths:
        copy = f"{STAGED_PLACEHOLDER}/{Path(path).name}"
        if f"{folder}/".startswith(f"{copy}/"):
            return path + folder.removeprefix(copy)
    return ""


def _select_run(word: str) -> Run:
    from hpcrun.jobs.run_selection import select_one  # this import takes 25 ms, and most jobs do not need it

    return select_one(word)


def _find_value(args: Sequence[str], option: str) -> str | None:
    """Return the last value of an option among arguments: ``--option value`` or ``--option=value``."""
    flag, value = f"--{option}", None
    for word, next_word in pairwise([*args, ""]):
        if word == flag:
            value = next_word
        elif word.startswith(f"{flag}="):
            value = word.partition("=")[2]
    return value
