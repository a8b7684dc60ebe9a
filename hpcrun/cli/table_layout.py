"""Layout of tables on a terminal, with whole words, few lines for each row, and no empty columns."""

from __future__ import annotations

import re
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

COLUMN_GAP = "  "
"""The space between two columns."""

MIN_WIDTH = 8
"""Minimum width of cut cells, in characters."""

SHORT_WORD_CHARACTERS = 12
"""Maximum length of a short word, such as a state or a number; short words are cut last."""

LONG_WORD_CHARACTERS = 24
"""Number of characters of a long word, such as a path, that must fit; otherwise optional columns are dropped."""


def drop_empty_columns(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Remove columns whose cells are all empty, except the first column.

    Args:
        rows: The row of headings, then the rows of cells.
    """
    column_indices = [column for column in range(len(rows[0])) if column == 0 or any(row[column] for row in rows[1:])]
    return [[row[column] for column in column_indices] for row in rows]


def drop_columns_to_fit(rows: Sequence[Sequence[str]], width: int, optional_columns: Sequence[str]) -> list[list[str]]:
    """Remove optional columns, one by one, until the other columns fit a width without cutting words.

    Args:
        rows: The row of headings, then the rows of cells.
        width: The width of the terminal in characters.
        optional_columns: The headings of optional columns, the least important first.
    """
    remaining_rows = [list(row) for row in rows]
    for heading in optional_columns:
        columns = zip(*remaining_rows, strict=True)
        if sum(max(map(_two_line_width, column)) + len(COLUMN_GAP) for column in columns) - len(COLUMN_GAP) <= width:
            break
        if heading in remaining_rows[0]:
            column_index = remaining_rows[0].index(heading)
            remaining_rows = [row[:column_index] + row[column_index + 1 :] for row in remaining_rows]
    return remaining_rows


def split_columns(rows: Sequence[Sequence[str]], width: int, repeated_columns: int) -> list[list[list[str]]]:
    """Split a table into tables that fit a width without cutting words; each has the first columns, and some others.

    Args:
        rows: The row of headings, then the rows of cells.
        width: The width of the terminal in characters.
        repeated_columns: The number of first columns that each table has.
    """
    sizes = [max(map(_two_line_width, column)) + len(COLUMN_GAP) for column in zip(*rows, strict=True)]
    free_width = width + len(COLUMN_GAP) - sum(sizes[:repeated_columns])
    blocks: list[list[int]] = []
    block_width = 0
    for column in range(repeated_columns, len(sizes)):
        if not blocks or block_width + sizes[column] > free_width:
            blocks.append([])
            block_width = 0
        blocks[-1].append(column)
        block_width += sizes[column]
    return [[[*row[:repeated_columns], *(row[column] for column in block)] for row in rows] for block in blocks]


def lay_out(rows: Sequence[Sequence[str]], width: int, max_lines: int | None = 2) -> list[list[list[str]]]:
    """Fit a table to a width: wrap cells between words, and cut cells only if wrapping does not suffice.

    Args:
        rows: The row of headings, then the rows of cells.
        width: The width of the terminal in characters.
        max_lines: Maximum number of lines of a row; None to break long words instead of cutting cells.

    Returns:
        For each row a list of lines; each line is a list of cells that are padded to the widths of the columns.
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
    """Return the widths of the columns: as wide as their cells if they fit, else narrower, to wrap or cut cells."""
    columns = list(zip(*rows, strict=True))
    width -= len(COLUMN_GAP) * (len(columns) - 1)
    widths = [max(map(len, column)) for column in columns]
    wrapped_widths = [max(_wrapped_width(cell, max_lines) for cell in column) for column in columns]
    cut_widths = [
        size if size <= SHORT_WORD_CHARACTERS else max(_shortest_width(cell, max_lines) for cell in column)
        for size, column in zip(wrapped_widths, columns, strict=True)
    ]
    for minimum_widths in (wrapped_widths, cut_widths, [min(size, MIN_WIDTH) for size in wrapped_widths]):
        while sum(widths) > width:
            widest_column = max(range(len(widths)), key=lambda index: widths[index] - minimum_widths[index])
            if widths[widest_column] == minimum_widths[widest_column]:
                break
            widths[widest_column] -= 1
    return widths


def _two_line_width(cell: str) -> int:
    """Return the smallest width at which two lines fit the words of a cell, cut to `LONG_WORD_CHARACTERS`."""
    return _wrapped_width(" ".join(word[:LONG_WORD_CHARACTERS] for word in cell.split()), 2)


def _wrapped_width(cell: str, max_lines: int | None) -> int:
    """Return the smallest width at which the words of a cell fit the given number of lines.

    A short cell, such as ``164 kB``, is not wrapped.
    """
    if len(cell) <= MIN_WIDTH:
        return len(cell)
    size = max(map(len, cell.split()), default=0)
    while max_lines and len(_split_lines(cell, size)) > max_lines:
        size += 1
    return size


def _shortest_width(cell: str, max_lines: int | None) -> int:
    """Return the smallest width to which a cell is cut; the values of a sweep's task stay whole."""
    shortest_cell = _shorten_names(cell, 1)
    return MIN_WIDTH if shortest_cell == cell else max(MIN_WIDTH, _wrapped_width(shortest_cell, max_lines))


def _shorten_names(cell: str, length: int) -> str:
    """Cut the names of a task's values, as in ``net learning-rate=0.1``, to a number of characters: ``net l…=0.1``.

    Other cells, whose last word is no such value, stay as they are.
    """
    if not re.search(r" [^\s=]+=\S+$", cell):
        return cell
    return re.sub(rf"(?<= )([^\s=]{{{length}}})[^\s=]{{2,}}=", r"\1…=", cell)


def _wrap_cell(cell: str, width: int, max_lines: int | None) -> list[str]:
    lines = _split_lines(cell, width, break_words=max_lines is None)
    for length in range(MIN_WIDTH, 0, -1):
        if not max_lines or (len(lines) <= max_lines and max(map(len, lines)) <= width):
            break
        lines = _split_lines(_shorten_names(cell, length), width)
    if max_lines and len(lines) > max_lines:
        lines = [*lines[: max_lines - 1], " ".join(lines[max_lines - 1 :])]
    return [_truncate_line(line, width) for line in lines]


def _break_path(word: str, width: int) -> str:
    """Insert blanks behind slashes of a path that is longer than a line; other words stay as they are."""
    end = word.rfind("/", 0, width) + 1
    return f"{word[:end]} {_break_path(word[end:], width)}" if len(word) > width and end > 1 else word


def _truncate_line(line: str, width: int) -> str:
    """Cut a line to a width: after a whole word, if most of the line remains, else within a word."""
    if len(line) <= width:
        return line
    if line.startswith("/"):
        return f"…{line[1 - width :]}"
    whole_words = line[: width - 1].rpartition(" ")[0].rstrip(" ,;:")
    return f"{whole_words} …" if len(whole_words) >= width // 2 else f"{line[: width - 1]}…"


def _split_lines(cell: str, width: int, *, break_words: bool = False) -> list[str]:
    if break_words:
        cell = re.sub(r"\S+", lambda word: _break_path(word[0], width), cell)
    return wrap(cell, max(width, 1), break_long_words=break_words, break_on_hyphens=False) or [""]
