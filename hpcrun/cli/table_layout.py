"""Layout of tables on a terminal: whole words, few lines for each row, no empty columns."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

GAP = "  "
"""The space between two columns."""

MIN_WIDTH = 8
"""Cells are not cut below this width."""

SHORT_WORD = 12
"""Words up to this length, such as states and numbers, are cut last."""

LONG_WORD = 24
"""The part of a longer word, such as a job's name or a path, for which no optional column is dropped."""


def drop_empty_columns(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Remove columns without cells, except the first.

    Args:
        rows: The headings, then the cells.
    """
    kept = [number for number in range(len(rows[0])) if number == 0 or any(row[number] for row in rows[1:])]
    return [[row[number] for number in kept] for row in rows]


def drop_to_fit(rows: Sequence[Sequence[str]], width: int, optional: Sequence[str]) -> list[list[str]]:
    """Remove optional columns, one after the other, until the others fit a width without cut words.

    Args:
        rows: The headings, then the cells.
        width: The width of the terminal.
        optional: The headings of the columns, the least important first.
    """
    kept = [list(row) for row in rows]
    for heading in optional:
        columns = zip(*kept, strict=True)
        if sum(max(map(_readable_width, column)) + len(GAP) for column in columns) - len(GAP) <= width:
            break
        if heading in kept[0]:
            number = kept[0].index(heading)
            kept = [row[:number] + row[number + 1 :] for row in kept]
    return kept


def lay_out(rows: Sequence[Sequence[str]], width: int, max_lines: int | None = 2) -> list[list[list[str]]]:
    """Fit a table to a width: wrap cells between words, and cut them only where that does not suffice.

    Args:
        rows: The headings and cells.
        width: The width of the terminal.
        max_lines: Maximum number of lines of a row; None to break long words instead of cutting cells.

    Returns:
        For each row its lines, each a list of cells of their columns' widths.
    """
    widths = _fit_widths(rows, width, max_lines)
    table = []
    for row in rows:
        cells = [_wrap_cell(cell, size, max_lines) for cell, size in zip(row, widths, strict=True)]
        lines = [
            [cell[number] if number < len(cell) else "" for cell in cells] for number in range(max(map(len, cells)))
        ]
        table.append([[cell.ljust(size) for cell, size in zip(line, widths, strict=True)] for line in lines])
    return table


def _fit_widths(rows: Sequence[Sequence[str]], width: int, max_lines: int | None) -> list[int]:
    """Return the widths of the columns: as wide as their cells if they fit, else wrapped, else cut."""
    columns = list(zip(*rows, strict=True))
    width -= len(GAP) * (len(columns) - 1)
    widths = [max(map(len, column)) for column in columns]
    wrapped = [max(_wrapped_width(cell, max_lines) for cell in column) for column in columns]
    cut = [size if size <= SHORT_WORD else MIN_WIDTH for size in wrapped]
    for least in (wrapped, cut, [min(size, MIN_WIDTH) for size in wrapped]):
        while sum(widths) > width:
            widest = max(range(len(widths)), key=lambda number: widths[number] - least[number])
            if widths[widest] == least[widest]:
                break
            widths[widest] -= 1
    return widths


def _readable_width(cell: str) -> int:
    """Return the smallest width at which two lines show the words of a cell, of long ones `LONG_WORD` characters."""
    return _wrapped_width(" ".join(word[:LONG_WORD] for word in cell.split()), 2)


def _wrapped_width(cell: str, max_lines: int | None) -> int:
    """Return the smallest width at which the whole words of a cell need no more than the given number of lines.

    A short cell, such as ``164 kB``, is not wrapped.
    """
    if len(cell) <= MIN_WIDTH:
        return len(cell)
    size = max(map(len, cell.split()), default=0)
    while max_lines and len(_split_lines(cell, size)) > max_lines:
        size += 1
    return size


def _wrap_cell(cell: str, width: int, max_lines: int | None) -> list[str]:
    lines = _split_lines(cell, width, break_words=max_lines is None)
    if max_lines and len(lines) > max_lines:
        lines = [*lines[: max_lines - 1], " ".join(lines[max_lines - 1 :])]
    return [_cut(line, width) for line in lines]


def _cut(line: str, width: int) -> str:
    """Cut a line to a width: after a whole word, if most of the line remains, else within a word."""
    if len(line) <= width:
        return line
    if line.startswith("/"):
        return f"…{line[1 - width :]}"
    whole_words = line[: width - 1].rpartition(" ")[0].rstrip(" ,;:")
    return f"{whole_words} …" if len(whole_words) >= width // 2 else f"{line[: width - 1]}…"


def _split_lines(cell: str, width: int, *, break_words: bool = False) -> list[str]:
    return wrap(cell, max(width, 1), break_long_words=break_words, break_on_hyphens=False) or [""]
