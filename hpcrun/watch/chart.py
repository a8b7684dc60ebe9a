"""A curve of block characters, as many columns wide and lines high as there is room for."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCKS = " ▁▂▃▄▅▆▇█"
EIGHTHS = 8


def chart(values: Sequence[float | None], width: int, height: int, *, floor: float | None = None) -> list[str]:
    """Return the lines of a curve, the top one first; what is no number leaves a gap.

    Args:
        values: In the order of time. Fewer than columns are drawn wider; of more, a column shows the mean of some.
        width: Columns.
        height: Lines.
        floor: What the lowest line begins with; the least value where it is None.
    """
    columns = [_mean(part) for part in _parts(values, width)]
    numbers = [value for value in columns if value is not None]
    high = max(numbers, default=0.0)
    low = min(numbers, default=0.0) if floor is None else floor
    most = EIGHTHS * height
    levels = [
        0 if value is None else 1 + round((value - low) / (high - low) * (most - 1)) if high > low else most // 2
        for value in columns
    ]
    lines = reversed(range(height))
    return ["".join(BLOCKS[min(max(level - EIGHTHS * line, 0), EIGHTHS)] for level in levels) for line in lines]


def _parts(values: Sequence[float | None], width: int) -> list[Sequence[float | None]]:
    begins = [len(values) * column // width for column in range(width + 1)]
    return [values[begin : max(end, begin + 1)] for begin, end in pairwise(begins)]


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None
