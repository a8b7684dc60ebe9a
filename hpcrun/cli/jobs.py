"""``hpcrun status``, ``logs``, ``result`` and ``cancel``: one job, by id, ``last`` or name."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hpcrun.cli import completion, output
from hpcrun.errors import HpcrunError

JOB_HELP = "Job id, last, job name, or run directory."
Job = Annotated[str, typer.Argument(metavar="JOB", help=JOB_HELP, autocompletion=completion.jobs)]
AnyJob = Annotated[str | None, typer.Argument(metavar="[JOB]", help=JOB_HELP, autocompletion=completion.jobs)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value.")]


def status(job: AnyJob = None, as_json: Json = False) -> None:
    """Show the state of jobs.

    Without a JOB, of your 20 newest.

    \b
    Examples:
      hpcrun status
      hpcrun status last
      hpcrun status 1234 --json
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from itertools import islice

    from hpcrun import schedulers
    from hpcrun.jobs import runs, states

    chosen = [runs.find(job)] if job else [run for run in islice(runs.every(), 20) if run.job_id]
    told = schedulers.states(chosen)
    rows = []
    for run in chosen:
        state = told.get(run.job_id or "", states.UNSUBMITTED)
        last = (run.metrics() or [{}])[-1]
        progress = f"epoch {last['epoch']}/{last['epochs']}" if {"epoch", "epochs"} <= set(last) else ""
        ended = run.ended()
        code = ended["exit_code"] if ended and state.finished else None
        rows.append({
            "job_id": run.job_id, "name": run.name, "site": run.place, "state": state.name,
            "nodes": state.nodes, "elapsed": state.elapsed, "progress": progress,
            "exit_code": code, "reason": state.reason, "run_dir": str(run.directory),
        })  # fmt: skip
    if as_json:
        output.value(rows[0] if job else rows)
    elif not rows:
        output.message("no runs yet: hpcrun submit lenet5 --wait makes one")
    else:
        output.table(
            ("job", "name", "site", "state", "nodes", "elapsed", "progress", "exit", "reason"),
            [[value for key, value in row.items() if key != "run_dir"] for row in rows],
        )


def logs(
    job: Job = "last",
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the job ends.")] = False,
    rank: Annotated[int | None, typer.Option("--rank", metavar="N", help="One rank's own log, not the job's.")] = None,
) -> None:
    """Print a job's log, or one rank's.

    The job's log has what rank 0 and the launcher wrote.

    \b
    Examples:
      hpcrun logs -f
      hpcrun logs last --rank 3
      hpcrun logs 1234
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun import schedulers
    from hpcrun.jobs import runs
    from hpcrun.jobs.logs import Tail, until_ended

    run = runs.find(job)
    if rank is None:
        files = [(run.log("out"), sys.stdout), (run.log("err"), sys.stderr)]
    else:
        known = run.rank_logs()
        if rank not in known and not (follow and run.ended() is None):
            have = f"ranks 0 to {max(known)}" if known else "no rank's log yet"
            raise HpcrunError(f"job {run.job_id} has no log of rank {rank}; it has {have}", hint="leave --rank out")
        files = [(run.directory / "logs" / f"rank-{rank}.log", sys.stdout)]
    tails = [(Tail(file), stream) for file, stream in files if file]
    for _ in until_ended(run, schedulers.state) if follow else (None,):
        for tail, stream in tails:
            stream.write(tail.new())
            stream.flush()
    if follow and (state := schedulers.state(run)).name != "COMPLETED":
        output.message(f"job {run.job_id} ended {state.name}: {state.reason}")


def result(job: Job = "last", as_json: Json = False) -> None:
    """Show the figures that a job ended with.

    \b
    Examples:
      hpcrun result
      hpcrun result lenet5 --json
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.cli.follow import show_result
    from hpcrun.jobs import runs

    run = runs.find(job)
    figures = run.result()
    if figures is None:
        ended = run.ended()
        how = (
            f"it ended: {ended['reason']}" if ended else "it has not ended" if run.job_id else "it was never submitted"
        )
        hint = f"hpcrun logs {run.job_id or run.directory}"
        raise HpcrunError(f"job {run.job_id or '-'} ({run.name}) has no result; {how}", hint=hint, exit_code=1)
    if as_json:
        output.value(figures)
    else:
        show_result(run, everything=True)


def cancel(job: Job) -> None:
    """End a job with all its ranks.

    \b
    Examples:
      hpcrun cancel 1234
      hpcrun cancel last
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun import schedulers
    from hpcrun.jobs import runs

    run = runs.find(job)
    if run.job_id is None:
        raise HpcrunError(f"{run.directory} was never submitted", hint="there is nothing to cancel")
    state = schedulers.state(run)
    if state.finished:
        hint = f"hpcrun logs {run.job_id}"
        raise HpcrunError(f"job {run.job_id} has ended already: {state.name}", hint=hint, exit_code=1)
    schedulers.of(run).cancel(run)
    output.message(f"job {run.job_id} ({run.name}) is being cancelled")
