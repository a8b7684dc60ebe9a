"""Output of all commands: tables and JSON values on stdout, messages on stderr."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, TextIO, TypeVar

from hpcrun.errors import sanitize, sanitize_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

T = TypeVar("T")

MAX_FOLDED_ROWS = 200
"""Tables with more rows are not fitted to the terminal's width, which takes a millisecond per row."""


def message(text: str, colour: str = "") -> None:
    """Print a message for people on stderr.

    Args:
        text: The message; control characters are escaped.
        colour: The number of an ANSI colour.
    """
    escaped = sanitize(text)
    print(f"\x1b[{colour}m{escaped}\x1b[0m" if colour else escaped, file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Print lines on stdout.

    Args:
        text: The lines; control characters are escaped.
    """
    print(sanitize(text), flush=True)


def log(text: str, stream: TextIO) -> None:
    """Print a part of a log: its exact bytes to a file or pipe, without dangerous control characters to a terminal.

    Args:
        text: The part; surrogates stand for bytes that are not UTF-8.
        stream: stdout or stderr.
    """
    buffer = None if stream.isatty() else getattr(stream, "buffer", None)
    if buffer is None:
        stream.write(sanitize_log(re.sub("[\ud800-\udfff]", "\ufffd", text)))
    else:
        stream.flush()
        buffer.write(text.encode(errors="surrogateescape"))
    stream.flush()


def value(content: object) -> None:
    """Print one JSON value."""
    print(json.dumps(content, indent=2, default=str))


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    header: bool = True,
    styles: Mapping[str, str] | None = None,
) -> None:
    """Print a table on stdout; on a terminal it is folded to the terminal's width.

    Args:
        columns: The headings.
        rows: The cells.
        header: Whether to print the headings.
        styles: Styles of rich for rows, by the text of their first cell.
    """
    sys.stdout.write(text(columns, rows, header=header, styles=styles))


def text(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    header: bool = True,
    styles: Mapping[str, str] | None = None,
) -> str:
    """Return a table as text for stdout; see `table` for the arguments."""
    columns = list(map(sanitize, columns))
    cells = [["" if cell is None else sanitize(str(cell).replace("\n", " ")) for cell in row] for row in rows]
    if not sys.stdout.isatty() or len(cells) > MAX_FOLDED_ROWS:
        return _plain([list(columns), *cells] if header else cells, header=header)
    from io import StringIO

    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(file=StringIO(), force_terminal=True, markup=False, highlight=False)
    grid = Table(box=box.SIMPLE_HEAD if header else None, show_header=header, pad_edge=False)
    for number, column in enumerate(columns):
        grid.add_column(column, overflow="fold", style="bold" if number == 0 else None)
    for row in cells:
        grid.add_row(*row, style=(styles or {}).get(row[0]))
    with console.capture() as captured:
        console.print(grid)
    return captured.get()


def _plain(lines: list[list[str]], *, header: bool) -> str:
    """Return a table whose columns are as wide as their longest cell, for a pipe or a file."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if header:
        lines.insert(1, [_rule_character() * width for width in widths])
    padded = ("   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "".join(f"{line.rstrip()}\n" for line in padded)


def _rule_character() -> str:
    """Return the character that draws horizontal lines, or - where stdout's encoding lacks it."""
    try:
        "\u2500".encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return "-"
    return "\u2500"


def progress(items: Sequence[T], label: str) -> Iterable[T]:
    """Yield items, and show a progress bar on stderr if it is a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    import typer

    with typer.progressbar(items, label=label, file=sys.stderr) as bar:
        yield from bar


def screen(lines: Sequence[str]) -> None:
    """Redraw the terminal with lines, as many as fit."""
    from shutil import get_terminal_size

    visible = lines[: max(1, get_terminal_size().lines - 1)]
    # cursor home, erase to the right of each line and below the last: clearing the whole screen would flicker
    sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in visible) + "\x1b[J")
    sys.stdout.flush()
