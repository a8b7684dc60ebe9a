"""Charts that consist of block characters."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCKS = " ▁▂▃▄▅▆▇█"
EIGHTHS_PER_CELL = 8


def draw_chart(values: Sequence[float | None], width: int, height: int, *, floor: float | None = None) -> list[str]:
    """Return the lines of a chart, the top line first; a value of None leaves a gap.

    Args:
        values: The values in order of time; they are repeated or averaged to fit the width.
        width: The number of columns.
        height: The number of lines.
        floor: The value at the bottom of the chart; None for the minimum of the values.
    """
    columns = [_mean(column_values) for column_values in _split_columns(values, width)]
    known_values = [value for value in columns if value is not None]
    maximum = max(known_values, default=0.0)
    minimum = min(known_values, default=0.0) if floor is None else floor
    top_level = EIGHTHS_PER_CELL * height
    levels = [
        0
        if value is None
        else 1 + round((value - minimum) / (maximum - minimum) * (top_level - 1))
        if maximum > minimum
        else top_level // 2
        for value in columns
    ]
    lines = reversed(range(height))
    return [
        "".join(BLOCKS[min(max(level - EIGHTHS_PER_CELL * line, 0), EIGHTHS_PER_CELL)] for level in levels)
        for line in lines
    ]


def _split_columns(values: Sequence[float | None], width: int) -> list[Sequence[float | None]]:
    starts = [len(values) * column // width for column in range(width + 1)]
    return [values[start : max(next_start, start + 1)] for start, next_start in pairwise(starts)]


def _mean(values: Sequence[float | None]) -> float | None:
    known_values = [value for value in values if value is not None]
    return sum(known_values) / len(known_values) if known_values else None
