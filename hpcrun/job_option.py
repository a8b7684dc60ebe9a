"""The declaration of one option of a job, and checks of its value."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from hpcrun.errors import HpcrunError, closest_match

if TYPE_CHECKING:
    from collections.abc import Callable


class CommandLineOption(NamedTuple):
    """An option as users type it.

    Attributes:
        flag: The name of the option, such as ``--no-gpu``.
        help: The description of the option in ``--help``.
        metavar: The name of the option's value in ``--help``; None for an option without a value.
        commands: The commands that have the option; empty for all commands that start jobs.
        convert: A function that converts the typed value; None to use the value as typed.
        variable: The environment variable that passes the value to the ranks; None if they do not need it.
        panel: The title of the option's group in ``--help``.
    """

    flag: str
    help: str
    metavar: str | None = None
    commands: tuple[str, ...] = ()
    convert: Callable[[Any], Any] | None = None
    variable: str | None = None
    panel: str = "Job"


def declare_option(default: Any, *described: Any, **more: Any) -> Any:
    """Return the field of an option, given its default and the arguments of `CommandLineOption`."""
    return field(default=default, metadata={"option": CommandLineOption(*described, **more)})


def require_choice(flag: str, value: str | None, choices: tuple[str, ...], problem: str) -> None:
    """Refuse a value that is not among the choices; None stands for the default."""
    if value is not None and value not in choices:
        match = closest_match(str(value), [*choices])
        suggestion = f"did you mean {match}? " if match else ""
        raise HpcrunError(f"{flag}={value}: {problem}", hint=f"{suggestion}the choices: {', '.join(choices)}")


def require_whole_number(description: str, value: object, *, hint: str, minimum: int = 0) -> None:
    """Refuse a value that is not a whole number from a minimum; None stands for the default."""
    if value is not None and (type(value) is not int or value < minimum):
        raise HpcrunError(description, hint=hint)
