"""Options of a workload: declared in ``workload.toml``, checked before submission, and parsed in the job.

``workload.toml`` has one table per option::

    [options.batch-size]
    default = 128
    min = 1
    help = "samples per step, over all ranks"
    aliases = ["batch"]

An option without a default needs a type (``type = "int"``); otherwise it has the type of its default. The value of an
option with ``type = "run"`` is a job (``last``, an id, a name) or a file; the program gets the run directory or the
file. An option with the default ``false`` or ``true`` is a flag, ``--x`` and ``--no-x``. ``choices`` lists the valid
values; ``min`` and ``max`` are the limits of a number, and ``min_per_rank`` is the smallest share of it for a rank; a
job must set an option with ``required = true``. ``hints`` maps invalid values to hints. ``requires`` lists rules about
several options; see `hpcrun.option_rules`. ``--batch-size``, ``--batch_size`` and the alias ``--batch`` are the same
option; records contain its name.
"""

from __future__ import annotations

import argparse
import re
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn

from hpcrun.errors import HpcrunError, closest_match
from hpcrun.option_rules import read_rules, require_choice, require_divisible, require_in_range, require_share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_OPTION_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_OPTIONS_OF_HPCRUN = {
    "--dry-run", "--wait", "--json", "--site", "--nodes", "--time", "--no-gpu", "-N", "-n", "-p", "-t",
}  # fmt: skip
"""Options of hpcrun that users often type after --."""
_FLAG = r"(--[a-z-]+)(?:=.*)?|(-[A-Za-z])[0-9:]*"
"""Pattern for the name of an option in a word such as --nodes=2 or -N2."""
_FLAG_WITH_VALUE = r"argument (--[\w-]+).*: ignored explicit argument '(.*)'$"
_RANGE = r"invalid (?:int|float) value: '([\d.]+)[-:]([\d.]+)(?:[-:]([\d.]+))?'$"
TYPES: dict[str, type] = {"str": str, "int": int, "float": float, "run": str}
"""Types of options by their names in workload.toml; a ``run`` is replaced by its directory at submission."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        hint = f"hpcrun workload show {self.prog} lists its options"
        if bounds := re.search(_RANGE, message):
            range_text = "..".join(filter(None, bounds.groups()))
            has_decimals = any("." in number for number in bounds.groups() if number)
            advice = "lists decimal numbers: 0.1,0.2" if has_decimals else f"writes whole numbers {range_text}"
            hint = f"a sweep {advice}; {hint}"
        if parts := re.search(r"invalid float value: '(\d+),(\d+)'$", message):
            hint = f"decimals follow a point: {parts[1]}.{parts[2]}; --sweep takes a list of values"
        if given := re.search(_FLAG_WITH_VALUE, message):
            raise _flag_with_value_error(self.prog, *given.groups())
        raise HpcrunError(f"{self.prog}: {message}", hint=hint)


def _flag_with_value_error(name: str, flag: str, value: str) -> HpcrunError:
    line = flag if value.lower() not in {"false", "no", "off", "0"} else f"--no-{flag.removeprefix('--')}"
    return HpcrunError(f"{name}: {flag} {value}: the option takes no value", hint=f"write {line}")


def parse(name: str, table: Mapping[str, Mapping[str, Any]], argv: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments of a workload according to the options that it declares.

    Args:
        name: The workload's name, for messages.
        table: The ``[options]`` of its ``workload.toml``.
        argv: The arguments after ``--`` on the command line.

    Returns:
        A namespace with an attribute for each option; dashes in option names are underscores.

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
            is_required = declaration.get("required", False)
            parser.add_argument(*flags, type=TYPES[type_name], default=default, required=is_required)
        else:
            raise HpcrunError(
                f"{name}: its option --{option} has no type",
                hint='give it a default, or type = "str", "int", "float" or "run"',
            )
    args, unknown = parser.parse_known_args(list(argv))
    if unknown:
        known_names = [spelling for spelling in option_names if spelling in table or "_" not in spelling]
        preceding = dict(pairwise(reversed(argv))).get(unknown[0], "").removeprefix("--")
        preceding_declaration = table.get(option_names.get(preceding, ""), {})
        if isinstance(preceding_declaration.get("default"), bool) and not unknown[0].startswith("-"):
            raise _flag_with_value_error(name, f"--{preceding}", unknown[0])
        flag = re.fullmatch(_FLAG, unknown[0])
        if flag and (flag[1] or flag[2]) in _OPTIONS_OF_HPCRUN:
            message = f"{name} has no option {unknown[0]!r}"
            raise HpcrunError(message, hint=f"{unknown[0]} is an option of hpcrun: put it before --")
        typed_option = unknown[0].split("=")[0] if unknown[0].startswith("-") else unknown[0]
        closest_name = _closest_option(typed_option.lstrip("-").replace("_", "-"), known_names)
        raise HpcrunError(
            f"{name} has no option {typed_option!r}; it has {', '.join(format_flags(*one) for one in table.items())}",
            hint=f"did you mean --{closest_name}?"
            if closest_name
            else f"hpcrun workload show {name} lists its options",
        )
    values = _values(args, table)
    for option, declaration in table.items():
        require_choice(name, option, declaration.get("choices"), values[option], hints=declaration.get("hints"))
        require_in_range(name, option, declaration, values[option])
        for rule in read_rules(name, option, table):
            rule.require(name, option, values)
    return args


def _closest_option(name: str, known_names: list[str]) -> str | None:
    """Return the closest name, else the only one that has this word, or with which it begins: ``lr`` for ``lrate``."""
    similar_names = [known for known in known_names if name in known.split("-") or name.startswith(known)]
    return closest_match(name, known_names) or (similar_names[0] if len(similar_names) == 1 else None)


def require_ranks(
    name: str, table: Mapping[str, Mapping[str, Any]], argv: Sequence[str], ranks: int, workers: int = 1
) -> None:
    """Refuse a number of ranks that a rule excludes, or that is too large for an option with ``min_per_rank``.

    The value of such an option must also be divisible among virtual workers. The ranks that train one replica of the
    model, whose number an option with the rule ``divides_ranks`` gives, have one share of it.

    Args:
        name: The workload's name, for messages.
        table: The ``[options]`` of its ``workload.toml``.
        argv: Arguments that `parse` has accepted.
        ranks: The number of ranks of the job.
        workers: The number of virtual workers of each rank.

    Raises:
        HpcrunError: The declaration of an option excludes this number of ranks.
    """
    rules = [(option, rule) for option in table for rule in read_rules(name, option, table) if rule.limits_ranks]
    shared_options = [option for option in table if "min_per_rank" in table[option] and ranks * workers > 1]
    if not (rules or shared_options):
        return
    values = _values(parse(name, table, argv), table)
    for option, rule in rules:
        rule.require_ranks(name, option, values, ranks)
    group = prod(values[option] or 1 for option, rule in rules if rule.divides_ranks and rule.applies(values))
    for option in (option for option in shared_options if values[option] is not None):
        require_share(name, option, table[option]["min_per_rank"], values[option], ranks, group=group)
        require_divisible(name, option, values[option], ranks, workers)


def _values(args: argparse.Namespace, table: Mapping[str, object]) -> dict[str, Any]:
    return {option: getattr(args, option.replace("-", "_")) for option in table}


def map_option_names(name: str, table: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Map each name and alias of an option, without leading dashes, to the option.

    Args:
        name: The workload's name, for messages.
        table: The ``[options]`` of its ``workload.toml``.

    Raises:
        HpcrunError: Aliases are not a list of names, or two options have the same name.
    """
    options_by_name: dict[str, str] = {}
    for option, declaration in table.items():
        aliases = declaration.get("aliases", [])
        if not isinstance(aliases, list) or not all(isinstance(a, str) and _OPTION_NAME.fullmatch(a) for a in aliases):
            raise HpcrunError(
                f"{name}: its option --{option} has invalid aliases: {aliases!r}", hint='aliases = ["lr"]'
            )
        for spelling in dict.fromkeys(form for each in (option, *aliases) for form in (each, each.replace("-", "_"))):
            if options_by_name.setdefault(spelling, option) != option:
                message = f"{name}: --{spelling} names two options, --{options_by_name[spelling]} and --{option}"
                raise HpcrunError(message, hint="rename one of them, or remove the alias")
    return options_by_name


def format_flags(option: str, declaration: Mapping[str, Any]) -> str:
    """Format an option with its aliases: ``--learning-rate (--lr)``."""
    aliases = ", ".join(f"--{alias}" for alias in declaration.get("aliases", ()))
    return f"--{option} ({aliases})" if aliases else f"--{option}"


def replace_aliases(option_names: Mapping[str, str], argv: Sequence[str]) -> tuple[str, ...]:
    """Replace aliases in arguments by the names of their options, so that records of runs can be compared.

    Args:
        option_names: The option for each name or alias, from `map_option_names`.
        argv: Arguments that `parse` has accepted.
    """
    names_by_flag = {
        f"--{no}{spelling}": f"--{no}{option}" for spelling, option in option_names.items() for no in ("", "no-")
    }
    split_arguments = [word.partition("=") for word in argv]
    return tuple(f"{names_by_flag.get(flag, flag)}{equals}{value}" for flag, equals, value in split_arguments)
