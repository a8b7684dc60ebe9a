"""``hpcrun logs``: print the log of a job, or the logs of its ranks."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli import output
from hpcrun.cli.parameters import Job
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.states import State


def logs(
    job: Job = "last",
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing until the job ends.")] = False,
    rank: Annotated[
        str | None,
        typer.Option(
            "--rank", metavar="RANKS", help="Ranks whose logs are printed instead of the job's log, as 3 or 0,3-5."
        ),
    ] = None,
    grep: Annotated[
        str | None, typer.Option("--grep", metavar="PATTERN", help="Regular expression of the lines to print.")
    ] = None,
    lines: Annotated[
        int | None,
        typer.Option(
            "-n", "--lines", min=0, metavar="N", help="Number of lines to print, from the end of stdout and of stderr."
        ),
    ] = None,
) -> None:
    """Print the log of a job, or the logs of its ranks.

    The job's log has the output of rank 0 and of the launcher. If the ranks of a finished job did not communicate, the
    command first prints a WARNING. Lines of several ranks begin with [rank N on HOST].

    \b
    Examples:
      hpcrun logs -f
      hpcrun logs last --rank 0,3-5 -n 20
      hpcrun logs 1234 --grep 'nan|inf'
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun import schedulers
    from hpcrun.jobs import logs as reading
    from hpcrun.jobs import run_selection
    from hpcrun.jobs.runs import Run

    pattern = reading.compile_pattern(grep) if grep is not None else None
    ranks = reading.parse_ranks(rank) if rank is not None else None
    run = run_selection.select_one(job)
    label = run.job_id
    if ranks is None and not run.job_id and (start := run.start_by_hand):
        label, ranks = start.job_id, [0]
        log_location = f"slurm-{label}.out, where sbatch was called" if start.slurm_job else "what its script printed"
        subject = f"job {label}" if label else "this run"
        output.message(f"{subject} was started by hand: its own log is {log_location}; this is that of rank 0")
    if ranks is None and not run.job_id:
        output.message(f"{run.directory} has no job log: {run.unsubmitted_state.reason}")
        return
    _print_warning(run)
    if ranks is None:
        logs_and_streams = list(
            zip(reading.job_logs(run, pattern=pattern, line_count=lines), (sys.stdout, sys.stderr), strict=False)
        )
    else:
        must_exist = not follow or run.end_record() is not None
        rank_logs = reading.rank_logs(run, ranks, pattern=pattern, line_count=lines, must_exist=must_exist)
        logs_and_streams = [(log, sys.stdout) for log in rank_logs]

    def print_new_lines(*, has_ended: bool = False) -> None:
        for log, stream in logs_and_streams:
            output.log(log.read_new(ended=has_ended), stream)

    for _ in _wait_for_end(run) if follow else ():
        print_new_lines()
    print_new_lines(has_ended=True)
    is_missing = not any(log.tail.file.exists() for log, _ in logs_and_streams)
    state = schedulers.query_state(run := Run(run.directory)) if follow or is_missing else None
    if is_missing and state and state.finished:
        hint = f"hpcrun why {run.job_id} explains why it ended"
        raise HpcrunError(f"job {run.job_id} ended {state.name} without a log", hint=hint, exit_code=1)
    if is_missing:
        output.message(f"job {run.job_id} has no log yet")
    if follow and state and state.name != "COMPLETED":
        output.message(f"job {run.job_id or label} ended {state.name}: {state.reason}")


def _print_warning(run: "Run") -> None:
    """Print the warning that the ranks of a finished job did not communicate, which is at the end of the job's log."""
    from hpcrun.jobs import world_warning

    if run.end_record() and (warning := world_warning.read_warning(run)):
        output.message(f"WARNING: {warning}")


def _wait_for_end(run: "Run") -> "Iterator[None]":
    """Yield until a job has ended; print why the job is pending, or why it has not printed anything yet."""
    from hpcrun import schedulers
    from hpcrun.jobs import logs as reading
    from hpcrun.watch.wait_messages import WaitMessages

    messages = WaitMessages(run)

    def print_state(state: "State") -> None:
        if text := messages.describe_state(state):
            output.message(text)

    for _ in reading.poll_until_ended(run, schedulers.query_state, print_state):
        yield
        if text := messages.describe_start():
            output.message(text)
