"""The mark that this rank waits for the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from typing import Self


class waiting:  # noqa: N801  (reads as a function, like contextlib.suppress)
    """Marks, as a context, that this rank waits for all others; no lock, 0.3 us.

    Args:
        what: The collective, in words.
        number: Which one of them, said after the words.
    """

    __slots__ = ("number", "outer", "what")
    innermost: ClassVar[waiting | None] = None

    def __init__(self, what: str, number: int | None = None) -> None:
        self.what = what
        self.number = number

    def __enter__(self) -> Self:
        self.outer = waiting.innermost
        waiting.innermost = self
        return self

    def __exit__(self, *_: object) -> None:
        waiting.innermost = self.outer

    def __str__(self) -> str:
        return self.what if self.number is None else f"{self.what} {self.number}"
