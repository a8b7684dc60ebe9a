"""Roles of the ranks, such as pipeline stages, and what this rank did last, for messages about ranks that hang."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_roles: list[Callable[[int], str]] = []
_activities: list[Callable[[], str]] = []


def set_roles(role: Callable[[int], str], activity: Callable[[], str]) -> None:
    """Let messages name the roles of ranks, replacing earlier functions.

    Args:
        role: Function that returns the role of any rank, such as ``stage 1 of 2``; callable on every rank.
        activity: Function that returns what this rank began last; empty if nothing.
    """
    _roles[:], _activities[:] = [role], [activity]


def role_of(rank: int) -> str:
    """Return the role of a rank; empty if all ranks do the same."""
    return _roles[0](rank) if _roles else ""


def last_activity() -> str:
    """Return what this rank began last; empty if it is not known."""
    return _activities[0]() if _activities else ""
