"""Command-line parameters that several commands share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hpcrun.cli import completion

JOB_HELP = "Job id, last, job name, or run directory."
JOB_OR_SWEEP_HELP = f"{JOB_HELP[:-1]}; for a sweep all its tasks, or some: 1234_3, 1234_3-7."
_JOBS_HELP = "Job ids (12, 12-17), last, job names ('resnet*'), run directories, or all."


def recover_submissions(value: Any) -> Any:
    """Record the jobs of interrupted submissions, before a command selects jobs; return the value unchanged."""
    from hpcrun.schedulers.recovery import recover_jobs

    recover_jobs()
    return value


Job = Annotated[
    str, typer.Argument(metavar="JOB", help=JOB_HELP, autocompletion=completion.jobs, callback=recover_submissions)
]
JobOrSweep = Annotated[
    str,
    typer.Argument(metavar="JOB", help=JOB_OR_SWEEP_HELP, autocompletion=completion.jobs, callback=recover_submissions),
]
Jobs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[JOB]...", help=_JOBS_HELP, autocompletion=completion.jobs, callback=recover_submissions),
]
States = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="STATE[,STATE]",
        help="States of the jobs, as running,pending or R,PD.",
        autocompletion=completion.states,
    ),
]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Earliest submission of the jobs, as an age (30m, 2h, 3d) or a date."),
]
Site = Annotated[
    str | None,
    typer.Argument(
        metavar="[SITE]", help="Site, or a site file; default: the site used here.", autocompletion=completion.sites
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value.")]
