"""Detection of how the ranks of a training script communicate, from the text of the script, without running it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError, closest_match
from hpcrun.job_options import FRAMEWORKS
from hpcrun.script_names import read_script

if TYPE_CHECKING:
    from pathlib import Path

_OTHER_NAMES = {"pytorch": "torch", "tf": "tensorflow", "keras": "hpcrun", "ddp": "torch", "hvd": "horovod"}


def trains_model(argv: tuple[str, ...], start: Path) -> bool:
    """Return whether a command line runs a Python script that imports a training library.

    Args:
        argv: The command line of one rank.
        start: The directory in which the command line is started.
    """
    return read_script(argv, start).imports_training_library


def find_framework(argv: tuple[str, ...], start: Path, framework: str) -> str:
    """Return the framework through which the ranks of a command line find each other; ``auto`` if it is unknown.

    Args:
        argv: The command line of one rank.
        start: The directory in which the command line is started.
        framework: The value of ``--framework``; it is returned unless it is ``auto``.

    Raises:
        HpcrunError: A comment in the script names an unknown framework.
    """
    if framework != "auto":
        return framework
    names = read_script(argv, start)
    if names.comment and names.comment not in FRAMEWORKS:
        message = f"# hpcrun: framework={names.comment} in the script: hpcrun does not know this framework"
        word = names.comment.lower()
        similar = _OTHER_NAMES.get(word) or closest_match(word, [*FRAMEWORKS])
        suggestion = f"did you mean framework={similar}? " if similar else ""
        raise HpcrunError(message, hint=f"{suggestion}one of {', '.join(FRAMEWORKS)}; or remove the comment")
    return names.comment or names.framework.replace("none", "auto")


def trains_separate_models(argv: tuple[str, ...], start: Path) -> bool:
    """Return whether each rank of a command line would train a separate copy of the model.

    Args:
        argv: The command line of one rank; the result is False unless it runs a Python script.
        start: The directory in which the command line is started.
    """
    names = read_script(argv, start)
    return names.imports_training_library and not names.distributes
