"""Charts of block characters."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCKS = " ▁▂▃▄▅▆▇█"
EIGHTHS = 8


def draw_chart(values: Sequence[float | None], width: int, height: int, *, floor: float | None = None) -> list[str]:
    """Return the lines of a chart, the top one first; None leaves a gap.

    Args:
        values: The values in order of time; stretched, or averaged per column, to the width.
        width: The number of columns.
        height: The number of lines.
        floor: The value at the bottom; None for the minimum of the values.
    """
    columns = [_mean(part) for part in _split_columns(values, width)]
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


def _split_columns(values: Sequence[float | None], width: int) -> list[Sequence[float | None]]:
    begins = [len(values) * column // width for column in range(width + 1)]
    return [values[begin : max(end, begin + 1)] for begin, end in pairwise(begins)]


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None
