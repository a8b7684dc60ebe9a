"""The mark that this rank waits for the others, and how long it has done so."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self


class waiting:  # noqa: N801  (reads as a function, like contextlib.suppress)
    """Marks, as a context, that this rank waits for all others; no lock, 0.4 us.

    Args:
        what: The collective, in words.
        number: Which one of them, said after the words.
    """

    __slots__ = ("began", "number", "outer", "what")

    def __init__(self, what: str, number: int | None = None) -> None:
        self.what = what
        self.number = number

    def __enter__(self) -> Self:
        self.outer = _innermost[0]
        self.began = perf_counter()  # before other threads see the mark
        _innermost[0] = self
        return self

    def __exit__(self, *_: object) -> None:
        _innermost[0] = self.outer
        if self.outer is None:
            _seconds[0] += perf_counter() - self.began

    def __str__(self) -> str:
        return self.what if self.number is None else f"{self.what} {self.number}"


_innermost: list[waiting | None] = [
    None
]  # of the class it would be slow: Python forgets what it knows of a changed class
_seconds = [0.0]


def current_wait() -> waiting | None:
    """Return the innermost mark, or None: this rank waits for nobody."""
    return _innermost[0]


def waited_seconds() -> float:
    """Return how long this rank has waited so far, in s, for what came."""
    return _seconds[0]
