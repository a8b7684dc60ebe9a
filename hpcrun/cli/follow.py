"""Follow one job to its end: print its log live, cancel it on Ctrl+C, and print its metrics at the end."""

from __future__ import annotations

import re
import signal
import sys
from typing import TYPE_CHECKING

from hpcrun import schedulers
from hpcrun.cli import output
from hpcrun.jobs import safe_reading
from hpcrun.jobs.logs import Tail, poll_until_ended
from hpcrun.jobs.result_format import RESULT_LABELS, format_value
from hpcrun.jobs.run_secrets import masked_result
from hpcrun.jobs.runs import Run
from hpcrun.watch.wait_messages import WaitMessages

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.jobs.states import State

RANK_ERROR = re.compile(r"^\[rank \d+/\d+ on .*", re.MULTILINE)
"""The beginning of each error message of `hpcrun.train`."""

CONSEQUENCE_MARK = "(after rank "
"""The text by which `hpcrun.train` marks an error that another rank's error may have caused."""

TRACEBACK = re.compile(r"^Traceback \(most recent call last\)", re.MULTILINE)
MAX_LINES = 30
"""Maximum number of lines quoted from the log of a rank."""

MAX_LOG_BYTES = 1 << 22
"""Maximum number of bytes at the end of a log that are searched for an error."""


class Interrupts:
    """Signal handlers that count signals which cancel the job; they are installed before the job is submitted.

    Args:
        signals: The signals to count.
    """

    def __init__(self, signals: tuple[signal.Signals, ...]) -> None:
        self.received: int | None = None
        self.count = 0
        for number in signals:
            signal.signal(number, self._handle)

    def _handle(self, signal_number: int, _frame: object) -> None:
        self.received = self.received or signal_number
        self.count += 1


def follow(run: Run, *, cancel_signals: tuple[signal.Signals, ...], as_json: bool) -> int:
    """Submit a job and print its log until it ends.

    Args:
        run: A run directory that is ready to be submitted.
        cancel_signals: Signals to this process that cancel the job.
        as_json: Print one JSON value at the end; the log then goes to stderr.

    Returns:
        The exit code of the job, or 128 plus the number of the signal that cancelled it (130 for Ctrl+C).
    """
    interrupts = Interrupts(cancel_signals)
    schedulers.submit(run)
    stdout = sys.stderr if as_json else sys.stdout
    logs = ((run.log("out"), stdout), (run.log("err"), sys.stderr))
    streams = [(Tail(log), stream) for log, stream in logs if log]
    messages = WaitMessages(Run(run.directory), can_cancel=True)

    def print_pending(state: State) -> None:
        if text := messages.describe_state(state):
            output.message(text)

    def print_logs() -> None:
        for tail, stream in streams:
            if text := tail.read_new():
                output.log(text, stream)
        if text := messages.describe_start():
            output.message(text)

    for _ in poll_until_ended(run, schedulers.query_state, print_pending):
        print_logs()
        if interrupts.received:
            _cancel(run, interrupts, print_logs)
            break
    run = Run(run.directory)
    return _report_end(run, as_json=as_json, signal_number=interrupts.received)


def _cancel(run: Run, interrupts: Interrupts, print_logs: Callable[[], None]) -> None:
    """Cancel a job and keep printing its log; a second signal kills its ranks immediately."""
    from hpcrun.cli.cancel import CancelProgress, format_stopped_job
    from hpcrun.schedulers.stopping import stop

    def kill_requested() -> bool:
        print_logs()
        return interrupts.count > 1

    output.message(f"\ncancelling job {run.job_id} with all its ranks ... (Ctrl+C again: kill them now)")
    for stopped_job in stop([run], CancelProgress(kill_requested)):
        if stopped_job.error:
            raise stopped_job.error
        print_logs()
        output.message(f"{format_stopped_job(stopped_job)}; run directory: {run.directory}")


def _report_end(run: Run, *, as_json: bool, signal_number: int | None) -> int:
    """Print how a job ended, and return its exit code."""
    from hpcrun.jobs import states

    record = run.end_record()
    state = states.state_from_record(record) if record and not record.may_restart else schedulers.query_state(run)
    exit_status = 128 + signal_number if signal_number else exit_code(run, state)
    if as_json:
        end_values = {
            "state": "CANCELLED" if signal_number else state.name,
            "exit_code": exit_status,
            "result": masked_result(run) or None,
        }
        output.value({**run.summary(), **end_values})
    elif exit_status == 0:
        show_result(run)
    elif not signal_number:
        show_failure(run, state)
    return exit_status


def exit_code(run: Run, state: State) -> int:
    """Return the exit code of a job; use the scheduler's state if the exit record is not visible yet."""
    record = run.end_record()
    return record.exit_code if record else int(state.name != "COMPLETED")


def show_failure(run: Run, state: State) -> None:
    """Print how a job failed, and the last log lines of the first failed rank if the job's log lacks them."""
    output.message(f"job {run.job_id} ended {state.name}: {state.reason}")
    if failed_rank := _error_missing_in_job_log(run):
        rank, text = failed_rank
        output.message(f"rank {rank}'s log ends (hpcrun logs {run.job_id} --rank {rank}):")
        output.message("\n".join(f"  {line}" for line in text.splitlines()[-MAX_LINES:]))
    output.message(f"logs of its ranks: {run.directory}/logs; script: {run.directory}/job.sh")
    output.message(f"cause, and what to do: hpcrun why {run.job_id}")


def _error_missing_in_job_log(run: Run) -> tuple[int, str] | None:
    """Return the first failed rank and its error, if only the log of this rank contains the error.

    `hpcrun.train` sends the first error to rank 0, whose output is the job's log, unless rank 0 cannot be reached.
    """
    log = run.log()
    if run.spec.output_on_all_ranks or (
        log and log.exists() and RANK_ERROR.search(safe_reading.read_tail(log, MAX_LOG_BYTES))
    ):
        return None
    errors = []
    for rank, log in run.rank_logs().items():
        text = safe_reading.read_tail(log, MAX_LOG_BYTES)
        if rank and (error := RANK_ERROR.search(text) or TRACEBACK.search(text)):
            errors.append((CONSEQUENCE_MARK in error[0], log.stat().st_mtime, rank, text[error.start() :]))
    return min(errors)[2:] if errors else None


def show_result(run: Run, *, all_keys: bool = False) -> None:
    """Print the metrics of a run as a table.

    Args:
        run: The run.
        all_keys: Print all keys of the result; by default only the well-known keys, or all if there are none.
    """
    result = masked_result(run)
    known_keys = [key for key in RESULT_LABELS if key in result]
    other_keys = [key for key in result if key not in RESULT_LABELS] if all_keys or not known_keys else []
    rows = [
        (RESULT_LABELS.get(key, key.replace("_", " ")), format_value(result[key])) for key in [*known_keys, *other_keys]
    ]
    output.table(("metric", "value"), [*rows, ("run directory", str(run.directory))], header=False)
