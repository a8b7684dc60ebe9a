"""``hpcrun compare``: how runs differ."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli import output
from hpcrun.cli.arguments import Jobs, Json
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.report.compare import Row


def compare(
    jobs: Jobs = None,
    everything: Annotated[bool, typer.Option("--all", help="Also what is the same in all of them.")] = False,
    script: Annotated[
        bool, typer.Option("--script", help="Also how the scripts of the others differ from the first one's.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show how runs differ.

    In what they were made of, and in what came of them. Looks at script,
    arguments, resources, site, environment, code, packages and modules,
    exit and figures. Nobody is asked; the run directories say it all.

    \b
    Examples:
      hpcrun compare 1234 last
      hpcrun compare 'resnet*'
      hpcrun compare 12-17 --all --json
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.jobs import select
    from hpcrun.report import compare as comparing
    from hpcrun.report.facts import RECORDED, facts

    runs = select.in_order(jobs or [])
    if len(runs) < 2:
        what = f"{runs[0].name} alone was named" if runs else "no run was named"
        raise HpcrunError(f"compare needs two runs at least: {what}", hint=select.FORMS)
    known = [facts(run) for run in runs]
    told = comparing.rows(known)
    shown = [row for row in told if everything or row.differs]
    diffs = [comparing.scripts(runs[0], run) for run in runs[1:]] if script else []
    if as_json:
        more = {"scripts": diffs} if script else {}
        output.value({"runs": [run.facts() for run in runs], "rows": [row.as_json() for row in shown], **more})
        return
    if shown:
        _table(runs, shown)
    for diff in filter(None, diffs):
        output.show(f"\n{diff}".removesuffix("\n"))
    if not any(row.differs for row in told):
        output.message(f"nothing differs between {' and '.join(map(_title, runs))}")
    elif not any(row.differs and row.made_of for row in told):
        output.message("they were made of the same, as far as it is recorded: only what came of them differs")
    for section in RECORDED:
        for number in comparing.lacking(known, section):
            output.message(f"{_title(runs[number])}: no {section} recorded, so none compared")


def _title(run: "Run") -> str:
    return f"{run.job_id or run.directory.name} {run.name}"


def _table(runs: "Sequence[Run]", rows: "Sequence[Row]") -> None:
    """Print the runs side by side, or one below the other where there are more of them than rows."""
    from hpcrun.jobs.figures import shown

    def cell(value: Any) -> str:
        return "-" if value is None else shown(value)

    if len(runs) > len(rows):
        keys = [row.key for row in rows]
        output.table(
            ("run", *(f"{row.key} ({row.section})" if keys.count(row.key) > 1 else row.key for row in rows)),
            [(_title(run), *(cell(row.shown[number]) for row in rows)) for number, run in enumerate(runs)],
        )
        return
    before = ""
    lines = []
    for row in rows:
        lines.append((row.section if row.section != before else "", row.key, *map(cell, row.shown)))
        before = row.section
    output.table(("of", "what", *map(_title, runs)), lines)
