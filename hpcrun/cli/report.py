"""``hpcrun report``: a page on runs, to keep and to send around."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

import re
from pathlib import Path
from typing import Annotated

import typer

from hpcrun.cli import output as showing
from hpcrun.cli.arguments import Jobs
from hpcrun.errors import HpcrunError

MOST = 50
"""So many runs a browser can show on a page, and a person tell apart."""


def report(
    jobs: Jobs = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="The page's file; default: hpcrun-JOB.html, or hpcrun-runs.html."
        ),
    ] = None,
) -> None:
    """Write a page on a job, to keep or to send.

    It has curves, figures, ranks, logs, and what the job was made of. It is
    one HTML file that needs no network. Of several jobs, the curves are
    drawn into one another. Without a JOB, it is on the last one.

    \b
    Examples:
      hpcrun report
      hpcrun report 1234 --output run.html
      hpcrun report 'resnet*' -o sweep.html
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun import schedulers
    from hpcrun.jobs import rows, select
    from hpcrun.report.page import GENERATOR, page

    runs = select.in_order(jobs or ["last"])
    if len(runs) > MOST:
        raise HpcrunError(
            f"these are {len(runs)} runs, and a page has {MOST} at most", hint="hpcrun compare lists more"
        )
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{runs[0].name}-{runs[0].job_id}" if len(runs) == 1 else "runs")
    file = output or Path(f"hpcrun-{name}.html")
    if file.exists() and GENERATOR not in file.read_text(errors="replace"):
        hint = "give another FILE, or remove it first"
        raise HpcrunError(f"{file} is there already, and is no page of hpcrun's", hint=hint)
    if not file.parent.is_dir():
        raise HpcrunError(f"there is no folder {file.parent}", hint="make it first, or give another FILE")
    text = page(runs, rows.rows(runs, schedulers.states))
    file.write_text(text, encoding="utf-8", errors="replace")
    showing.message(f"a page on {runs[0].name if len(runs) == 1 else f'{len(runs)} runs'}:")
    print(file)
