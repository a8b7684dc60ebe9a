"""Record of the collective in which this rank waits, and of its total waiting time."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self


class waiting:  # noqa: N801  (reads as a function, like contextlib.suppress)
    """Context manager that records that this rank waits for other ranks; takes 0.4 us, without a lock.

    Args:
        description: Description of the collective.
        step: Number of the step, or what else only this rank waits for, to append to the description; None for nothing.
    """

    __slots__ = ("description", "outer", "start_time", "step")

    def __init__(self, description: str, step: int | str | None = None) -> None:
        self.description = description
        self.step = step

    def __enter__(self) -> Self:
        self.outer = _innermost_wait[0]
        self.start_time = perf_counter()  # assigned before other threads can read this object
        _innermost_wait[0] = self
        return self

    def __exit__(self, *_: object) -> None:
        _innermost_wait[0] = self.outer
        if self.outer is None:
            _waited_seconds[0] += perf_counter() - self.start_time

    def __str__(self) -> str:
        return self.description if self.step is None else f"{self.description} {self.step}"


_innermost_wait: list[waiting | None] = [None]  # a list, because changing a class attribute invalidates Python's caches
_waited_seconds = [0.0]


def current_wait() -> waiting | None:
    """Return the innermost `waiting` block; None if this rank does not wait."""
    return _innermost_wait[0]


def waited_seconds() -> float:
    """Return the total seconds that this rank has waited in completed collectives."""
    return _waited_seconds[0]
