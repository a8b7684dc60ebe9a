"""Comparison of arguments between the ranks."""

from __future__ import annotations

import pickle
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hpcrun.errors import HpcrunError
from hpcrun.train.ranks.collectives import checked_allgather
from hpcrun.train.ranks.script_position import format_ranks
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Mapping

WIDTH = 80  # maximum characters of a value in an error
_HINT = (
    "all ranks must call it with the same arguments: look for values that depend on the rank, the host, the time or an "
    "unseeded random number"
)


class _Nothing:
    def __repr__(self) -> str:
        return "nothing"


def require_agreement(things: Mapping[str, object], hint: str = _HINT) -> None:
    """Refuse values that differ between ranks, with one collective for all of them; every rank must call this.

    Args:
        things: Picklable values by the names that the error uses: `{"batch size": 64, "epochs": 3}`.
        hint: The hint of the error.

    Raises:
        HpcrunError: The ranks' values differ; raised on all ranks, with the same message.
    """
    if world().size == 1:
        return
    gathered = checked_allgather("the comparison of arguments", dict(things))
    nothing = _Nothing()
    differences = []
    for name in dict.fromkeys(name for local in gathered for name in local):
        groups: list[tuple[object, list[int]]] = []
        for rank, local in enumerate(gathered):
            value = local.get(name, nothing)
            ranks = next((ranks for other, ranks in groups if _is_same(value, other)), None)
            if ranks is None:
                groups.append((value, [rank]))
            else:
                ranks.append(rank)
        if len(groups) > 1:
            differences.append(f"{name}: " + "; ".join(f"{_cut(v)} on {format_ranks(r)}" for v, r in groups))
    if differences:
        raise HpcrunError(
            "the ranks disagree about the " + ", and about the ".join(differences),
            hint=hint,
        )


def _is_same(one: Any, other: Any) -> bool:
    with suppress(Exception):  # arrays have no single truth value, and classes may raise anything
        if one is other or bool(one == other):
            return True
    return pickle.dumps(one) == pickle.dumps(other)  # NaN equals NaN


def _cut(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= WIDTH else f"{text[: WIDTH // 2]} ... {text[-WIDTH // 2 :]}"
