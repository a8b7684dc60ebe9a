"""Options of a workload: declared in its ``workload.toml``, checked before submission, parsed in the job.

``workload.toml`` has one table per option::

    [options.batch-size]
    default = 128
    min = 1
    help = "samples a step, over all ranks"
    aliases = ["batch"]

An option has the type of its default, or without a default the given one (``type = "int"``). A default of ``false``
or ``true`` makes a flag, ``--x`` and ``--no-x``. ``choices`` lists the valid values; ``min`` and ``max`` limit numbers.
``--batch-size``, ``--batch_size`` and the aliases ``--batch`` are the same option; records contain its name.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any, NoReturn

from hpcrun.errors import HpcrunError, closest_match

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_OPTIONS_OF_HPCRUN = {
    "--dry-run",
    "--wait",
    "--json",
    "--site",
    "--nodes",
    "--time",
    "--no-gpu",
    "-N",
    "-n",
    "-p",
    "-t",
}
_RANGE = re.compile(r"invalid (?:int|float) value: '(\d+)[-:](\d+)'$")
TYPES: dict[str, type] = {"str": str, "int": int, "float": float}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        hint = f"hpcrun workload show {self.prog} lists its options"
        if bounds := _RANGE.search(message):
            hint = f"a sweep's range of whole numbers is {bounds[1]}..{bounds[2]}; {hint}"
        raise HpcrunError(f"{self.prog}: {message}", hint=hint)


def parse(name: str, table: Mapping[str, Mapping[str, Any]], argv: Sequence[str]) -> argparse.Namespace:
    """Parse a workload's arguments by its table of options.

    Args:
        name: The workload's name, for messages.
        table: The ``[options]`` of its ``workload.toml``.
        argv: The arguments after ``--`` on the command line.

    Returns:
        One attribute per option, dashes as underscores.

    Raises:
        HpcrunError: An option is unknown, or a value has the wrong type, is not one of the choices or is out of range.
    """
    parser = _Parser(prog=name, allow_abbrev=False, add_help=False)
    option_names = map_option_names(name, table)
    for option, declaration in table.items():
        flags = [f"--{spelling}" for spelling, target in option_names.items() if target == option]
        default = declaration.get("default")
        type_name = declaration.get("type", type(default).__name__)
        if type_name == "bool":
            parser.add_argument(*flags, action=argparse.BooleanOptionalAction, default=bool(default))
        elif type_name in TYPES:
            parser.add_argument(*flags, type=TYPES[type_name], default=default, choices=declaration.get("choices"))
        else:
            raise HpcrunError(
                f"{name}: its option --{option} has no type",
                hint='give it a default, or type = "str", "int" or "float"',
            )
    args, unknown = parser.parse_known_args(list(argv))
    if unknown:
        known = [spelling for spelling in option_names if spelling in table or "_" not in spelling]
        if unknown[0] in _OPTIONS_OF_HPCRUN:
            what = f"{name} has no option {unknown[0]!r}"
            raise HpcrunError(what, hint=f"{unknown[0]} is an option of hpcrun: put it before --")
        like = closest_match(unknown[0].split("=")[0].lstrip("-").replace("_", "-"), known)
        raise HpcrunError(
            f"{name} has no option {unknown[0]!r}; it has {', '.join(format_flags(*one) for one in table.items())}",
            hint=f"did you mean --{like}?" if like else f"hpcrun workload show {name} lists its options",
        )
    for option, declaration in table.items():
        _require_in_range(name, option, declaration, getattr(args, option.replace("-", "_")))
    return args


def _require_in_range(name: str, option: str, declaration: Mapping[str, Any], value: Any) -> None:
    low, high = declaration.get("min"), declaration.get("max")
    if value is None or not ((low is not None and value < low) or (high is not None and value > high)):
        return
    limits = {"at least": low, "at most": high}
    allowed = " and ".join(f"{words} {limit}" for words, limit in limits.items() if limit is not None)
    raise HpcrunError(
        f"{name}: --{option}={value}: must be {allowed}", hint=f"hpcrun workload show {name} lists its options"
    )


def map_option_names(name: str, table: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Map each name of an option, without leading dashes, to the option: its own name first, then its aliases.

    Args:
        name: The workload's name, for messages.
        table: The ``[options]`` of its ``workload.toml``.

    Raises:
        HpcrunError: Aliases are not a list of names, or two options have the same name.
    """
    found: dict[str, str] = {}
    for option, declaration in table.items():
        aliases = declaration.get("aliases", [])
        if not isinstance(aliases, list) or not all(isinstance(a, str) and _NAME.fullmatch(a) for a in aliases):
            raise HpcrunError(
                f"{name}: its option --{option} has invalid aliases: {aliases!r}", hint='aliases = ["lr"]'
            )
        for spelling in dict.fromkeys((option, option.replace("-", "_"), *aliases)):
            if found.setdefault(spelling, option) != option:
                what = f"{name}: --{spelling} names two options, --{found[spelling]} and --{option}"
                raise HpcrunError(what, hint="rename one of them, or remove the alias")
    return found


def format_flags(option: str, declaration: Mapping[str, Any]) -> str:
    """Format an option with its aliases: ``--learning-rate (--lr)``."""
    aliases = ", ".join(f"--{alias}" for alias in declaration.get("aliases", ()))
    return f"--{option} ({aliases})" if aliases else f"--{option}"


def replace_aliases(option_names: Mapping[str, str], argv: Sequence[str]) -> tuple[str, ...]:
    """Replace aliases by the names of their options, so that records of runs can be compared.

    Args:
        option_names: The result of `map_option_names`.
        argv: Arguments that `parse` has accepted.
    """
    flags = {f"--{no}{spelling}": f"--{no}{option}" for spelling, option in option_names.items() for no in ("", "no-")}
    pairs = [word.partition("=") for word in argv]
    return tuple(f"{flags.get(flag, flag)}{equals}{value}" for flag, equals, value in pairs)
