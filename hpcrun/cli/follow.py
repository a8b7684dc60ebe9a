"""Following one job to its end: log live, Ctrl+C cancels, a table of figures closes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from hpcrun import schedulers
from hpcrun.cli import output
from hpcrun.jobs.logs import Tail, until_ended
from hpcrun.jobs.runs import Run

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.jobs.states import State

FIGURES = {
    "test_accuracy": ("test accuracy", "{:.4f}"),
    "val_accuracy": ("validation accuracy", "{:.4f}"),
    "loss": ("loss", "{:.4f}"),
    "images_per_second": ("images/s", "{:,.0f}"),
    "ranks": ("ranks", "{}"),
    "hosts": ("hosts", "{}"),
    "train_seconds": ("training time", "{:.1f} s"),
}


def follow(directory: Path, facts: dict[str, Any] | None) -> int:
    """Show a job's log until it ends.

    Args:
        directory: The run directory.
        facts: With --json, what to print at the end, together with the result; the log then goes to stderr.

    Returns:
        The job's exit code; 130 where Ctrl+C cancelled it.
    """
    run = Run(directory)
    stdout = sys.stdout if facts is None else sys.stderr
    ends = (("out", stdout), ("err", sys.stderr))
    streams = [(Tail(directory / f"{run.job_id}_0_log.{end}"), stream) for end, stream in ends]
    told: list[str] = []

    def waiting(state: State) -> None:
        if state.name != "RUNNING" and not state.finished and [state.name, state.reason] != told:
            told[:] = [state.name, state.reason]
            output.message(f"job {run.job_id} is {state.name.lower()}" + (f": {state.reason}" if state.reason else ""))

    try:
        for _ in until_ended(run, schedulers.state, waiting):
            for tail, stream in streams:
                if text := tail.new():
                    stream.write(text)
                    stream.flush()
    except KeyboardInterrupt:
        output.message(f"\ncancelling job {run.job_id} with all its ranks ...")
        schedulers.of(run).cancel(run)
        output.message(f"job {run.job_id} cancelled; run directory: {directory}")
        return 130
    return close(run, facts)


def close(run: Run, facts: dict[str, Any] | None) -> int:
    """Tell how a job ended, and return its exit code."""
    from hpcrun.jobs import states

    ended = run.ended()
    state = states.from_record(ended) if ended else schedulers.state(run)
    code = int(ended["exit_code"]) if ended else 1
    if facts is not None:
        output.value({**facts, "state": state.name, "exit_code": code, "result": run.result()})
    elif code == 0:
        show_result(run)
    else:
        output.message(f"job {run.job_id} ended {state.name}: {state.reason}")
        output.message(f"logs of its ranks: {run.directory}/logs; script: {run.directory}/job.sh")
    return code


def show_result(run: Run) -> None:
    """Print a run's figures as a table."""
    result = run.result() or {}
    rows: list[tuple[str, str]] = []
    for key, (label, form) in FIGURES.items():
        if result.get(key) is not None:
            shown = ", ".join(result[key]) if isinstance(result[key], list) else form.format(result[key])
            rows.append((label, shown))
    rows.append(("run directory", str(run.directory)))
    output.table(("figure", "value"), rows, header=False)
