"""Arguments of a workload that name runs: they become run directories, since a job's own names are other ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.errors import HpcrunError
from hpcrun.jobs import run_selection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.workload import Workload


def find_run_or_file(word: str) -> Path:
    """Return the run directory or the model that a word names.

    Args:
        word: What commands take for a job; a Keras model; or a folder with ``model.keras``, such as ``./models``. A
            word without a slash is the name of a job, also if there is a folder of this name.

    Raises:
        HpcrunError: There is none, or the word names several runs.
    """
    path = Path(paths.expand_user(word))
    if path.suffix in {".keras", ".h5"}:
        if not path.is_file():
            raise HpcrunError(f"there is no model {word}", hint="or name a job: hpcrun status lists them")
        return path.absolute()
    if ("/" in word or word == ".") and (path / "model.keras").is_file() and not (path / "job.json").exists():
        return path.resolve()
    return run_selection.select_one(word).directory


def resolve_runs(program: Workload, args: Sequence[str]) -> tuple[str, ...]:
    """Replace the values of options of the type ``run`` by paths.

    Args:
        program: The workload.
        args: Its arguments.

    Raises:
        HpcrunError: A value names no run.
    """
    declared = program.options or {}
    names = {f"--{name}" for name, option in program.option_names.items() if declared[option].get("type") == "run"}
    resolved, follows = [], False
    for word in args:
        flag, equals, value = word.partition("=")
        if follows:
            resolved.append(str(find_run_or_file(word)))
        elif flag in names and equals:
            resolved.append(f"{flag}={find_run_or_file(value)}")
        else:
            resolved.append(word)
        follows = not follows and word in names
    return tuple(resolved)
