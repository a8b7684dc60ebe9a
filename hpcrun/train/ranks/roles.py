"""Roles of the ranks, such as pipeline stages, and what this rank did last, for messages about ranks that hang."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable


@frozen
class RankRoles:
    """The roles of the ranks.

    Attributes:
        role: Function that returns the role of any rank, such as ``stage 1 of 2``; callable on every rank.
        activity: Function that returns what this rank began last; empty if nothing.
    """

    role: Callable[[int], str]
    activity: Callable[[], str]


_current: RankRoles | None = None


def set_roles(roles: RankRoles) -> None:
    """Let messages name the roles of ranks, replacing earlier ones."""
    global _current  # noqa: PLW0603
    _current = roles


def role_of(rank: int) -> str:
    """Return the role of a rank; empty if all ranks do the same."""
    return _current.role(rank) if _current else ""


def last_activity() -> str:
    """Return what this rank began last; empty if it is not known."""
    return _current.activity() if _current else ""
