"""The arguments that name jobs and sites, declared once."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hpcrun.cli import completion

ONE_JOB = "Job id, last, job name, or run directory."
ONE_JOB_OR_SWEEP = f"{ONE_JOB[:-1]}; of a sweep all tasks, or 1234_3, 1234_3-7."
_MANY = "Job ids (12, 12-17), last, job names ('resnet*'), run directories, or all."


def recovered(words: Any) -> Any:
    """Find the jobs again whose submission was cut short, before jobs are chosen."""
    from hpcrun.schedulers.recovery import recover

    recover()
    return words


Job = Annotated[str, typer.Argument(metavar="JOB", help=ONE_JOB, autocompletion=completion.jobs, callback=recovered)]
JobOrSweep = Annotated[
    str, typer.Argument(metavar="JOB", help=ONE_JOB_OR_SWEEP, autocompletion=completion.jobs, callback=recovered)
]
Jobs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[JOB]...", help=_MANY, autocompletion=completion.jobs, callback=recovered),
]
States = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="STATE[,STATE]",
        help="Only jobs in these states: RUNNING or R, pending or pd, ...",
        autocompletion=completion.states,
    ),
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Only jobs submitted since: 30m, 2h, 3d ago, or a date.")
]
Site = Annotated[
    str | None,
    typer.Argument(
        metavar="[SITE]", help="Site, or a site file; default: the one used here.", autocompletion=completion.sites
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value.")]
