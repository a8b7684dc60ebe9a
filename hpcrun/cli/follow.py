"""Following one job to its end: log live, Ctrl+C cancels (twice: at once), a table of figures closes."""

from __future__ import annotations

import re
import signal
import sys
import time
from typing import TYPE_CHECKING

from hpcrun import schedulers
from hpcrun.cli import output
from hpcrun.jobs import records
from hpcrun.jobs.figures import FIGURES, shown
from hpcrun.jobs.logs import Tail, until_ended
from hpcrun.jobs.runs import Run
from hpcrun.why.signatures import in_brief

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.jobs.states import State

STILL_SECONDS = 60.0
"""So often it is said again that a job waits."""

TOLD = re.compile(r"^\[rank \d+/\d+ on .*", re.MULTILINE)
"""How `hpcrun.train` begins an error."""

AFTER = "(after rank "
"""What it writes about an error that another rank's error may have caused."""

TRACEBACK = re.compile(r"^Traceback \(most recent call last\)", re.MULTILINE)
MOST_LINES = 30
MOST_OF_LOG = 1 << 22
"""So many bytes at a log's end are searched for an error."""


class Interrupts:
    """Signals that are to end the job rather than this process, from before it is submitted.

    Args:
        signals: The signals.
    """

    def __init__(self, signals: tuple[signal.Signals, ...]) -> None:
        self.received: int | None = None
        self.count = 0
        for number in signals:
            signal.signal(number, self._receive)

    def _receive(self, number: int, _frame: object) -> None:
        self.received = self.received or number
        self.count += 1


def follow(run: Run, *, ends_with: tuple[signal.Signals, ...], as_json: bool) -> int:
    """Submit a job and show its log until it ends.

    Args:
        run: A run directory that is ready to be submitted.
        ends_with: Signals to this process that end the job.
        as_json: Print one JSON value at the end; the log then goes to stderr.

    Returns:
        The job's exit code; 128 and the signal's number where one ended it (130 for Ctrl+C).
    """
    interrupts = Interrupts(ends_with)
    scheduler = schedulers.of(run)
    job_id = scheduler.submit(run)
    stdout = sys.stderr if as_json else sys.stdout
    logs = ((run.log("out"), stdout), (run.log("err"), sys.stderr))
    streams = [(Tail(log), stream) for log, stream in logs if log]
    told: dict[tuple[str, str], float] = {}  # what it waits for, and when that was said last

    def waiting(state: State) -> None:
        now, what = time.monotonic(), (state.name, state.reason)
        if state.name == "RUNNING" or state.finished or now - told.get(what, -STILL_SECONDS) < STILL_SECONDS:
            return
        still = "still " * (what in told)
        told[what] = now
        reason = in_brief(state.reason)
        never = " (Ctrl+C cancels it)" if "(never starts" in reason else ""
        why = f"; hpcrun why {job_id} tells more" if still else ""
        output.message(": ".join(filter(None, [f"job {job_id} is {still}{state.name.lower()}", reason])) + never + why)

    def show() -> None:
        for tail, stream in streams:
            if text := tail.new():
                output.log(text, stream)

    for _ in until_ended(run, schedulers.state, waiting):
        show()
        if interrupts.received:
            _stop(run, interrupts, show)
            break
    run = Run(run.directory)
    return _close(run, as_json=as_json, signalled=interrupts.received)


def _stop(run: Run, interrupts: Interrupts, show: Callable[[], None]) -> None:
    """Stop a job while its log goes on; a second signal leaves its ranks no more time."""
    from hpcrun.cli.stopping import Progress, told
    from hpcrun.schedulers.stopping import stop

    def hurry() -> bool:
        show()
        return interrupts.count > 1

    output.message(f"\ncancelling job {run.job_id} with all its ranks ... (Ctrl+C again: at once)")
    for each in stop([run], Progress(hurry)):
        if each.error:
            raise each.error
        show()
        output.message(f"{told(each)}; run directory: {run.directory}")


def _close(run: Run, *, as_json: bool, signalled: int | None) -> int:
    """Tell how a job ended, and return its exit code."""
    from hpcrun.jobs import states

    ended = run.ended()
    state = states.from_record(ended) if ended and not ended.may_go_on else schedulers.state(run)
    code = 128 + signalled if signalled else exit_code(run, state)
    if as_json:
        how = {"state": "CANCELLED" if signalled else state.name, "exit_code": code, "result": run.result()}
        output.value({**run.facts(), **how})
    elif code == 0:
        show_result(run)
    elif not signalled:
        tell_end(run, state)
    return code


def exit_code(run: Run, state: State) -> int:
    """Return a job's exit code; a shared file system may show its record later than the scheduler tells its end."""
    ended = run.ended()
    return ended.exit_code if ended else int(state.name != "COMPLETED")


def tell_end(run: Run, state: State) -> None:
    """Say how a job ended, and what the first rank to fail wrote last, where the job's log has not shown it."""
    output.message(f"job {run.job_id} ended {state.name}: {state.reason}")
    if found := _unseen_error(run):
        rank, text = found
        output.message(f"rank {rank}'s log ends (hpcrun logs {run.job_id} --rank {rank}):")
        output.message("\n".join(f"  {line}" for line in text.splitlines()[-MOST_LINES:]))
    output.message(f"logs of its ranks: {run.directory}/logs; script: {run.directory}/job.sh")
    output.message(f"why, and what to do: hpcrun why {run.job_id}")


def _unseen_error(run: Run) -> tuple[int, str] | None:
    """Return the first rank that failed and its error, if only its own log has that.

    `hpcrun.train` brings the first error to rank 0, whose output is the job's log, unless rank 0 cannot be reached.
    """
    log = run.log()
    if run.spec.output_on_all_ranks or (log and log.exists() and TOLD.search(records.tail(log, MOST_OF_LOG))):
        return None
    errors = []
    for rank, log in run.rank_logs().items():
        text = records.tail(log, MOST_OF_LOG)
        if rank and (error := TOLD.search(text) or TRACEBACK.search(text)):
            errors.append((AFTER in error[0], log.stat().st_mtime, rank, text[error.start() :]))
    return min(errors)[2:] if errors else None


def show_result(run: Run, *, everything: bool = False) -> None:
    """Print a run's figures as a table: what people look for first, and on request (or for want of that) all else."""
    result = run.result() or {}
    first = [key for key in FIGURES if key in result]
    others = [key for key in result if key not in FIGURES] if everything or not first else []
    rows = [(FIGURES.get(key, key.replace("_", " ")), shown(result[key])) for key in [*first, *others]]
    output.table(("figure", "value"), [*rows, ("run directory", str(run.directory))], header=False)
