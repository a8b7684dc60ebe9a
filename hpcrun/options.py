"""A workload's own options: declared once in its ``workload.toml``, checked before submitting, parsed in the job.

``workload.toml`` has one table per option::

    [options.batch-size]
    default = 128
    help = "samples a step, over all ranks"

The type is the default's; an option without a default names it (``type = "int"``). A default of ``false`` or ``true``
makes a switch, ``--x`` and ``--no-x``.
``--batch-size`` and ``--batch_size`` are the same option.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, NoReturn

from hpcrun.errors import HpcrunError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    for option, facts in table.items():
        flags = dict.fromkeys([f"--{option}", f"--{option.replace('-', '_')}"])
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
        known = [f"--{option}" for option in table]
        like = nearest(unknown[0].split("=")[0].replace("_", "-"), known)
        raise HpcrunError(
            f"{name} has no option {unknown[0]!r}; it has {', '.join(known)}",
            hint=f"did you mean {like}?" if like else f"hpcrun workload show {name} lists its options",
        )
    return args
