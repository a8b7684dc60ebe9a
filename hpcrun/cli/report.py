"""``hpcrun report``: write an HTML page on one or several runs."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

import re
from pathlib import Path
from typing import Annotated

import typer

from hpcrun.cli import output as cli_output
from hpcrun.cli.parameters import Jobs
from hpcrun.errors import HpcrunError

MAX_RUNS = 50
"""Maximum number of runs on a page; more runs would make it slow in a browser, and the curves hard to distinguish."""

_OTHER_FORMATS = {".pdf", ".png", ".svg", ".md", ".txt", ".csv", ".json", ".docx"}
"""File name suffixes that programs would not open as HTML."""


def report(
    jobs: Jobs = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="File of the page; default: hpcrun-JOB.html or hpcrun-runs.html.",
        ),
    ] = None,
) -> None:
    """Write an HTML page about a job, to keep or to send.

    The page has training curves, metrics, ranks, logs and the job's inputs, in one file that needs no network. Curves
    of several jobs share one plot. Without a JOB, the page describes the last job.

    \b
    Examples:
      hpcrun report
      hpcrun report 1234 --output run.html
      hpcrun report 'resnet*' -o sweep.html
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun import schedulers
    from hpcrun.jobs import run_selection, status_rows
    from hpcrun.report.page import GENERATOR, render_page

    runs = run_selection.select_in_order(jobs or ["last"])
    if len(runs) > MAX_RUNS:
        raise HpcrunError(
            f"{len(runs)} runs were selected; a page has at most {MAX_RUNS}", hint="hpcrun compare lists more"
        )
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{runs[0].name}-{runs[0].job_id}" if len(runs) == 1 else "runs")
    file = output or Path(f"hpcrun-{name}.html")
    if file.suffix.lower() in _OTHER_FORMATS:
        hint = f"--output={file.with_suffix('.html')}; a browser can print the page to a file"
        raise HpcrunError(f"--output={file}: the page is HTML", hint=hint)
    if file.exists() and GENERATOR not in file.read_text(errors="replace"):
        hint = "give another FILE, or remove it first"
        raise HpcrunError(f"{file} exists, and hpcrun did not write it", hint=hint)
    if not file.parent.is_dir():
        raise HpcrunError(f"there is no folder {file.parent}", hint="create it first, or give another FILE")
    text = render_page(runs, status_rows.build_rows(runs, schedulers.query_states))
    file.write_text(text, encoding="utf-8", errors="replace")
    cli_output.message(f"wrote a page on {runs[0].name if len(runs) == 1 else f'{len(runs)} runs'}:")
    print(file)
