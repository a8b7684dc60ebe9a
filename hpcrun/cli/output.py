"""How results and messages look: tables on a terminal, one JSON value for scripts, messages on stderr."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def message(text: str) -> None:
    """Tell a person something; never on stdout."""
    print(text, file=sys.stderr, flush=True)


def value(content: object) -> None:
    """Print exactly one JSON value."""
    print(json.dumps(content, indent=2, default=str))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, header: bool = True) -> None:
    """Print a table on stdout, never cutting a cell where no terminal sets the width."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    # a pipe or a file has no width: there, lines are as long as they are
    console = Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else 10_000)
    grid = Table(box=box.SIMPLE_HEAD if header else None, show_header=header, pad_edge=False)
    for number, column in enumerate(columns):
        grid.add_column(column, overflow="fold", style="bold" if number == 0 else None)
    for row in rows:
        grid.add_row(*("" if cell is None else str(cell) for cell in row))
    console.print(grid)
