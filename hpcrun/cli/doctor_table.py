"""Tables of the findings of ``hpcrun doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.cli import output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.finding import Finding

COLOURS = {"warning": "33", "error": "31", "nodes differ": "33"}


def show_findings(title: str, rows: Sequence[Finding]) -> None:
    """Print findings and their fixes as a table, and the numbers of errors and warnings."""
    print(f"{title}\n")
    cells: list[tuple[str, str, str]] = []
    for row in rows:
        cells.append((row.severity, row.check, str(row)))
        cells += [("", "", f"\u2192 {row.fix}")] if row.fix else []
    output.table(("", "check", "found"), cells, colours=COLOURS, max_lines=None)
    counts = [(sum(row.severity == level for row in rows), level) for level in ("error", "warning")]
    print()
    output.message(", ".join(f"{count or 'no'} {level}{'s' * (count != 1)}" for count, level in counts))
