"""Comparison of arguments between the ranks."""

from __future__ import annotations

import pickle
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hpcrun.errors import HpcrunError
from hpcrun.run.script_position import format_ranks
from hpcrun.train.ranks.collectives import checked_allgather
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_VALUE_CHARACTERS = 80  # maximum length of a value in an error message, in characters
_HINT = (
    "all ranks must make the call with the same arguments: look for values that depend on the rank, the host, the time "
    "or an unseeded random number"
)


class _MissingValue:
    def __repr__(self) -> str:
        return "nothing"


def require_agreement(values: Mapping[str, object], hint: str = _HINT) -> None:
    """Raise an error if values differ between ranks. Collective.

    Args:
        values: Picklable values by their names in the error message: `{"batch size": 64, "epochs": 3}`.
        hint: Hint of the error.

    Raises:
        HpcrunError: The ranks' values differ; raised on all ranks, with the same message.
    """
    if world().size == 1:
        return
    all_values = checked_allgather("the comparison of arguments", dict(values))
    missing_value = _MissingValue()
    differences = []
    for name in dict.fromkeys(name for values_of_rank in all_values for name in values_of_rank):
        groups: list[tuple[object, list[int]]] = []
        for rank, values_of_rank in enumerate(all_values):
            value = values_of_rank.get(name, missing_value)
            ranks = next((ranks for group_value, ranks in groups if _are_equal(value, group_value)), None)
            if ranks is None:
                groups.append((value, [rank]))
            else:
                ranks.append(rank)
        if len(groups) > 1:
            differences.append(f"{name}: " + "; ".join(f"{_abbreviate(v)} on {format_ranks(r)}" for v, r in groups))
    if differences:
        raise HpcrunError(
            "the ranks disagree about the " + ", and about the ".join(differences),
            hint=hint,
        )


def _are_equal(value: Any, other_value: Any) -> bool:
    with suppress(Exception):  # bool() of an array raises an error, and `__eq__` of a class may raise any exception
        if value is other_value or bool(value == other_value):
            return True
    return pickle.dumps(value) == pickle.dumps(other_value)  # pickled NaNs are equal


def _abbreviate(value: object) -> str:
    text = " ".join(repr(value).split())
    return (
        text
        if len(text) <= MAX_VALUE_CHARACTERS
        else f"{text[: MAX_VALUE_CHARACTERS // 2]} ... {text[-MAX_VALUE_CHARACTERS // 2 :]}"
    )
