"""``hpcrun compare``: show how runs differ."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli import output
from hpcrun.cli.parameters import Jobs, Json
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.report.comparison import ComparisonRow


def compare(
    jobs: Jobs = None,
    all_values: Annotated[bool, typer.Option("--all", help="Also show values that are equal in all runs.")] = False,
    script: Annotated[
        bool, typer.Option("--script", help="Also show a diff of each job script to the job script of the first run.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show how runs differ.

    Compares the inputs of runs (script, arguments, resources, site, environment, code, packages, modules) and their
    results (exit code, metrics). The command reads only the run directories, and does not query Slurm.

    \b
    Examples:
      hpcrun compare 1234 last
      hpcrun compare 'resnet*'
      hpcrun compare 12-17 --all --json
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.jobs import run_selection
    from hpcrun.report import comparison as comparing
    from hpcrun.report.run_facts import OPTIONAL_SECTIONS, collect_facts

    runs = run_selection.select_in_order(jobs or [])
    if len(runs) < 2:
        problem = f"only {runs[0].name} was named" if runs else "no run was named"
        raise HpcrunError(f"compare needs at least two runs: {problem}", hint=run_selection.SELECTION_HINT)
    records = [collect_facts(run) for run in runs]
    rows = comparing.compare_facts(records)
    shown_rows = [row for row in rows if all_values or row.differs]
    diffs = [comparing.diff_scripts(runs[0], run) for run in runs[1:]] if script else []
    if as_json:
        scripts = {"scripts": diffs} if script else {}
        output.value(
            {"runs": [run.summary() for run in runs], "rows": [row.as_json() for row in shown_rows], **scripts}
        )
        return
    if shown_rows:
        _table(runs, shown_rows)
    for diff in filter(None, diffs):
        output.show(f"\n{diff}".removesuffix("\n"))
    if not any(row.differs for row in rows):
        output.message(f"nothing differs between {' and '.join(map(_title, runs))}")
    elif not any(row.differs and row.is_input for row in rows):
        output.message("all recorded inputs are equal; only the results differ")
    for section in OPTIONAL_SECTIONS:
        for run_index in comparing.runs_without_section(records, section):
            output.message(f"{_title(runs[run_index])}: no {section} recorded, and none compared")


def _title(run: "Run") -> str:
    return f"{run.job_id or run.directory.name} {run.name}"


def _table(runs: "Sequence[Run]", rows: "Sequence[ComparisonRow]") -> None:
    """Print a table with one column per run, or with one row per run if there are more runs than values."""
    from hpcrun.jobs.result_format import format_value

    def cell(value: Any) -> str:
        return "-" if value is None else format_value(value)

    if len(runs) > len(rows):
        keys = [row.key for row in rows]
        output.table(
            ("run", *(f"{row.key} ({row.section})" if keys.count(row.key) > 1 else row.key for row in rows)),
            [
                (_title(run), *(cell(row.masked_values[run_index]) for row in rows))
                for run_index, run in enumerate(runs)
            ],
            repeated_columns=1,
        )
        return
    previous_section = ""
    lines = []
    for row in rows:
        lines.append((row.section if row.section != previous_section else "", row.key, *map(cell, row.masked_values)))
        previous_section = row.section
    output.table(("section", "value", *map(_title, runs)), lines, repeated_columns=2)
