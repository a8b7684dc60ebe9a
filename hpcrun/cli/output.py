"""How results and messages look: tables on a terminal, one JSON value for scripts, messages on stderr."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, TextIO, TypeVar

from hpcrun.errors import sanitize, sanitize_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

T = TypeVar("T")

MOST_FOLDED = 200
"""So many rows of a table are fitted to the terminal's width, which takes a millisecond each."""


def message(text: str, colour: str = "") -> None:
    """Tell a person something; never on stdout.

    Args:
        text: It; no word of it does anything to the terminal.
        colour: The number of a terminal's colour.
    """
    shown = sanitize(text)
    print(f"\x1b[{colour}m{shown}\x1b[0m" if colour else shown, file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Print lines on stdout.

    Args:
        text: They; no word of them does anything to the terminal.
    """
    print(sanitize(text), flush=True)


def log(text: str, stream: TextIO) -> None:
    """Print a part of a log: on a terminal without what would do more than colour it, elsewhere as its bytes are.

    Args:
        text: It, whose bytes that are no UTF-8 are surrogates.
        stream: Where.
    """
    buffer = None if stream.isatty() else getattr(stream, "buffer", None)
    if buffer is None:
        stream.write(sanitize_log(re.sub("[\ud800-\udfff]", "\ufffd", text)))
    else:
        stream.flush()
        buffer.write(text.encode(errors="surrogateescape"))
    stream.flush()


def value(content: object) -> None:
    """Print exactly one JSON value."""
    print(json.dumps(content, indent=2, default=str))


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    header: bool = True,
    styles: Mapping[str, str] | None = None,
) -> None:
    """Print a table on stdout, never cutting a cell where no terminal sets the width.

    Args:
        columns: Their headings.
        rows: The cells.
        header: Whether to show the headings.
        styles: rich's styles, on a terminal, of rows by what their first cell says.
    """
    sys.stdout.write(text(columns, rows, header=header, styles=styles))


def text(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    header: bool = True,
    styles: Mapping[str, str] | None = None,
) -> str:
    """Return a table as text for stdout; see `table`."""
    columns = list(map(sanitize, columns))
    cells = [["" if cell is None else sanitize(str(cell).replace("\n", " ")) for cell in row] for row in rows]
    if not sys.stdout.isatty() or len(cells) > MOST_FOLDED:
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
    """Return a table whose lines are as long as they are: a pipe or a file has no width, and this takes no time."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if header:
        lines.insert(1, [_rule() * width for width in widths])
    padded = ("   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "".join(f"{line.rstrip()}\n" for line in padded)


def _rule() -> str:
    """Return what lines are drawn of, where stdout's encoding has it."""
    try:
        "\u2500".encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return "-"
    return "\u2500"


def progress(items: Sequence[T], label: str) -> Iterable[T]:
    """Yield items, and on a terminal show on stderr how many have been."""
    if not sys.stderr.isatty():
        yield from items
        return
    import typer

    with typer.progressbar(items, label=label, file=sys.stderr) as going:
        yield from going


def screen(lines: Sequence[str]) -> None:
    """Show lines on the terminal in place of what is there, as many as fit."""
    from shutil import get_terminal_size

    shown = lines[: max(1, get_terminal_size().lines - 1)]
    # home, each line up to the terminal's right edge, and nothing below: so that it does not flicker
    sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in shown) + "\x1b[J")
    sys.stdout.flush()
