"""What ``hpcrun doctor`` found, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcrun.cli import output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.finding import Finding

STYLES = {"warning": "yellow", "error": "red", "nodes differ": "yellow"}


def show(title: str, rows: Sequence[Finding]) -> None:
    """Show what was found as a table; what to do about it stands below it."""
    print(f"{title}\n")
    cells: list[tuple[str, str, str]] = []
    for row in rows:
        cells.append((row.severity, row.check, str(row)))
        cells += [("", "", f"\u2192 {row.fix}")] if row.fix else []
    output.table(("", "check", "found"), cells, styles=STYLES)
    counts = [(sum(row.severity == level for row in rows), level) for level in ("error", "warning")]
    print()
    output.message(", ".join(f"{count or 'no'} {level}{'s' * (count != 1)}" for count, level in counts))


def values(rows: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return what was found as JSON has it."""
    return [{"check": row.check, "level": row.severity, "found": str(row), "fix": row.fix or None} for row in rows]
