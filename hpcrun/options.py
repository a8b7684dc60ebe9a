"""A workload's own options: declared once in its ``workload.toml``, checked before submitting, parsed in the job.

``workload.toml`` has one table per option::

    [options.batch-size]
    default = 128
    help = "samples a step, over all ranks"
    aliases = ["batch"]

The type is the default's; an option without a default names it (``type = "int"``). A default of ``false`` or ``true``
makes a switch, ``--x`` and ``--no-x``.
``--batch-size``, ``--batch_size`` and the aliases ``--batch`` are the same option, which records tell by its name.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any, NoReturn

from hpcrun.errors import HpcrunError, closest_match

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
TYPES: dict[str, type] = {"str": str, "int": int, "float": float}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise HpcrunError(f"{self.prog}: {message}", hint=f"hpcrun workload show {self.prog} lists its options")


def parse(name: str, table: Mapping[str, Mapping[str, Any]], argv: Sequence[str]) -> argparse.Namespace:
    """Parse a workload's arguments by its table of options.

    Args:
        name: The workload's name, for messages.
        table: The ``[options]`` of its ``workload.toml``.
        argv: What followed ``--`` on the command line.

    Returns:
        One attribute per option, dashes as underscores.

    Raises:
        HpcrunError: An unknown option, or a value of the wrong type or not among its choices.
    """
    parser = _Parser(prog=name, allow_abbrev=False, add_help=False)
    option_names = map_option_names(name, table)
    for option, facts in table.items():
        flags = [f"--{spelling}" for spelling, of in option_names.items() if of == option]
        default = facts.get("default")
        kind = facts.get("type", type(default).__name__)
        if kind == "bool":
            parser.add_argument(*flags, action=argparse.BooleanOptionalAction, default=bool(default))
        elif kind in TYPES:
            parser.add_argument(*flags, type=TYPES[kind], default=default, choices=facts.get("choices"))
        else:
            raise HpcrunError(
                f"{name}: its option --{option} has no type",
                hint='give it a default, or type = "str", "int" or "float"',
            )
    args, unknown = parser.parse_known_args(list(argv))
    if unknown:
        shown = [spelling for spelling in option_names if spelling in table or "_" not in spelling]
        like = closest_match(unknown[0].split("=")[0].lstrip("-").replace("_", "-"), shown)
        raise HpcrunError(
            f"{name} has no option {unknown[0]!r}; it has {', '.join(format_flags(*one) for one in table.items())}",
            hint=f"did you mean --{like}?" if like else f"hpcrun workload show {name} lists its options",
        )
    return args


def map_option_names(name: str, table: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the option that each spelling means, without dashes in front: its name first, then its aliases.

    Args:
        name: The workload's name, for messages.
        table: The ``[options]`` of its ``workload.toml``.

    Raises:
        HpcrunError: Aliases that are not a list of names, or a name of two options.
    """
    found: dict[str, str] = {}
    for option, facts in table.items():
        aliases = facts.get("aliases", [])
        if not isinstance(aliases, list) or not all(isinstance(a, str) and _NAME.fullmatch(a) for a in aliases):
            raise HpcrunError(f"{name}: aliases of its option --{option}: {aliases!r}", hint='aliases = ["lr"]')
        for spelling in dict.fromkeys((option, option.replace("-", "_"), *aliases)):
            if found.setdefault(spelling, option) != option:
                what = f"{name}: --{spelling} is a name of two options, --{found[spelling]} and --{option}"
                raise HpcrunError(what, hint="give one of them another name, or leave out the alias")
    return found


def format_flags(option: str, facts: Mapping[str, Any]) -> str:
    """Return how an option is shown: ``--learning-rate (--lr)``."""
    aliases = ", ".join(f"--{alias}" for alias in facts.get("aliases", ()))
    return f"--{option} ({aliases})" if aliases else f"--{option}"


def replace_aliases(option_names: Mapping[str, str], argv: Sequence[str]) -> tuple[str, ...]:
    """Return arguments whose options have their one name, by which records of runs are compared.

    Args:
        option_names: What `map_option_names` says.
        argv: Arguments that `parse` has understood.
    """
    flags = {f"--{no}{spelling}": f"--{no}{of}" for spelling, of in option_names.items() for no in ("", "no-")}
    pairs = [word.partition("=") for word in argv]
    return tuple(f"{flags.get(flag, flag)}{equals}{value}" for flag, equals, value in pairs)
