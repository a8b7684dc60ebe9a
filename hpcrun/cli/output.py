"""Output of all commands: tables and JSON values on stdout, messages on stderr."""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, TextIO, TypeVar

from hpcrun.errors import sanitize, sanitize_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

T = TypeVar("T")

MAX_SITES = 6
"""Maximum number of sites listed by name in one line."""

_LABEL_COLOURS = {"ERROR": "1;31", "WARNING": "1;33", "HINT": "1;36"}
_LABEL = re.compile(f"^(?:{'|'.join(_LABEL_COLOURS)})(?=: )", re.MULTILINE)


def message(text: str, colour: str = "") -> None:
    """Print a message for people on stderr; a terminal shows ERROR, WARNING and HINT in colours.

    Args:
        text: The message; control characters are escaped.
        colour: The number of an ANSI colour for the whole message.
    """
    printable_text = sanitize(text)
    if colour:
        printable_text = _colour_text(printable_text, colour)
    elif sys.stderr.isatty():
        printable_text = _LABEL.sub(lambda label: _colour_text(label[0], _LABEL_COLOURS[label[0]]), printable_text)
    with suppress(OSError):  # if stderr cannot be written, such as to a full disk, the command continues
        print(printable_text, file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Print lines on stdout.

    Args:
        text: The lines; control characters are escaped.
    """
    print(sanitize(text), flush=True)


def sites(names: Sequence[str]) -> str:
    """Return the names of sites; if there are many sites, their number and the command that lists them."""
    return ", ".join(names) if len(names) <= MAX_SITES else f"{len(names)} sites (hpcrun site list)"


def log(text: str, stream: TextIO) -> None:
    """Print a part of a log: exact bytes to a file or pipe, and text without control characters to a terminal.

    Args:
        text: The part of the log; surrogates stand for bytes that are not UTF-8.
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
    colours: Mapping[str, str] | None = None,
    max_lines: int | None = 2,
    optional_columns: Sequence[str] = (),
    repeated_columns: int | None = None,
) -> None:
    """Print a table on stdout, fitted to the width of a terminal.

    Args:
        columns: The headings.
        rows: The cells.
        header: Whether to print the headings.
        colours: The ANSI colour number of a row, by the text of its first cell.
        max_lines: Maximum number of lines of a row on a terminal; None for no limit.
        optional_columns: Columns that a narrow terminal does not show, the least important first.
        repeated_columns: Number of first columns; a narrow terminal shows several tables with these columns and some of
            the others each. Default: one table.
    """
    sys.stdout.write(
        text(
            columns,
            rows,
            header=header,
            colours=colours,
            max_lines=max_lines,
            optional_columns=optional_columns,
            repeated_columns=repeated_columns,
        )
    )


def text(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    header: bool = True,
    colours: Mapping[str, str] | None = None,
    max_lines: int | None = 2,
    optional_columns: Sequence[str] = (),
    repeated_columns: int | None = None,
) -> str:
    """Return a table as text for stdout; see `table` for the arguments."""
    cells = [["" if cell is None else sanitize(str(cell).replace("\n", " ")) for cell in row] for row in rows]
    lines = [list(map(sanitize, columns)), *cells]
    if not sys.stdout.isatty():
        return _format_unaligned(lines if header else cells, header=header)
    from shutil import get_terminal_size

    from hpcrun.cli.table_layout import drop_columns_to_fit, drop_empty_columns, split_columns

    width = get_terminal_size().columns
    lines = drop_columns_to_fit(drop_empty_columns(lines), width, optional_columns)[0 if header else 1 :]
    tables = [lines] if repeated_columns is None else split_columns(lines, width, repeated_columns)
    return "\n".join(_format_table(lines, width, max_lines, colours or {}, header=header) for lines in tables if lines)


def _format_table(
    lines: list[list[str]], width: int, max_lines: int | None, colours: Mapping[str, str], *, header: bool
) -> str:
    """Return a table for a terminal."""
    from hpcrun.cli.table_layout import COLUMN_GAP, lay_out

    output_lines = []
    for row_index, row in enumerate(lay_out(lines, width, max_lines)):
        heading = header and row_index == 0
        colour = "1" if heading else colours.get(lines[row_index][0], "")
        output_lines += [_colour_text(COLUMN_GAP.join(line).rstrip(), colour) for line in row]
        if heading:
            output_lines.append(COLUMN_GAP.join(_rule_character() * len(cell) for cell in row[0]))
    return "".join(f"{line}\n" for line in output_lines)


def _colour_text(line: str, colour: str) -> str:
    return f"\x1b[{colour}m{line}\x1b[0m" if colour and not os.environ.get("NO_COLOR") else line


def _format_unaligned(lines: list[list[str]], *, header: bool) -> str:
    """Return a table whose columns are as wide as their longest cell, for a pipe or a file."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if header:
        lines.insert(1, [_rule_character() * width for width in widths])
    padded_lines = ("   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "".join(f"{line.rstrip()}\n" for line in padded_lines)


def _rule_character() -> str:
    """Return the character that draws horizontal lines; - if the encoding of stdout lacks this character."""
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
    """Redraw the terminal with the first lines that fit its height."""
    from shutil import get_terminal_size

    visible_lines = lines[: max(1, get_terminal_size().lines - 1)]
    # cursor home, erase to the right of each line and below the last: clearing the whole screen would flicker
    sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in visible_lines) + "\x1b[J")
    sys.stdout.flush()
