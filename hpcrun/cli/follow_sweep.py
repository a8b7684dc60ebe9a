"""Follow the tasks of a sweep: print a line when a task starts or ends, and a table of metrics at the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hpcrun import schedulers
from hpcrun.cli import output
from hpcrun.cli.cancel import CancelProgress
from hpcrun.cli.follow import Interrupts, exit_code
from hpcrun.cli.result import show_results
from hpcrun.jobs.logs import POLL_SECONDS, UNKNOWN_JOB_TIMEOUT_SECONDS
from hpcrun.jobs.poll_backoff import PollBackoff
from hpcrun.jobs.run_secrets import masked_result
from hpcrun.jobs.runs import Run
from hpcrun.jobs.states import describe_state
from hpcrun.schedulers.stopping import stop
from hpcrun.sweep import format_values

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterator, Mapping, Sequence

    from hpcrun.jobs.states import State

EXIT_RECORD_SECONDS = 1.0
"""The interval in s at which exit records of running tasks are read; exit records show the end of a task earlier than
Slurm."""


def follow(sweep: Run, *, cancel_signals: tuple[signal.Signals, ...], as_json: bool) -> int:
    """Submit a sweep and report on its tasks until all have ended.

    Args:
        sweep: The directory of a sweep that is ready to be submitted.
        cancel_signals: Signals to this process that cancel the tasks.
        as_json: Print one JSON value at the end.

    Returns:
        The exit code of the first task that failed, else 0; 128 plus the signal number if a signal cancelled the tasks.
    """
    interrupts = Interrupts(cancel_signals)
    schedulers.submit(sweep)
    states: dict[Run, State] = {}
    for states, changed_tasks in poll_until_all_ended(sweep.tasks):
        for task in changed_tasks:
            if line := format_change(task, states[task]):
                output.message(line)
        if interrupts.received:
            _cancel(sweep, states, interrupts)
            break
    codes = exit_codes(states)
    if as_json:
        tasks = [
            {**task.summary(), "state": state.name, "exit_code": task_code, "result": masked_result(task) or None}
            for (task, state), task_code in zip(states.items(), codes, strict=True)
        ]
        output.value({**sweep.summary(), "tasks": tasks})
    elif any(task.result_values() for task in sweep.tasks):
        show_results(sweep.tasks)
    return 128 + interrupts.received if interrupts.received else next(filter(None, codes), 0)


def exit_codes(states: Mapping[Run, State]) -> list[int]:
    """Return the exit codes of tasks, in their order."""
    return [exit_code(task, state) for task, state in states.items()]


def poll_until_all_ended(tasks: Sequence[Run]) -> Iterator[tuple[dict[Run, State], list[Run]]]:
    """Yield the states of all tasks and the tasks with a new state, until all have ended or Slurm lost them.

    The generator yields every `POLL_SECONDS`, but queries the scheduler less often.

    Args:
        tasks: Tasks of one sweep, all of them submitted.
    """
    previous_states: dict[Run, State] = {}
    last_known_times: dict[Run, float] = {}
    backoff, last_read = PollBackoff(tasks), time.monotonic()
    while True:
        has_ended_task = False
        if time.monotonic() - last_read >= EXIT_RECORD_SECONDS:
            last_read = time.monotonic()
            has_ended_task = any(
                state.name == "RUNNING" and _has_ended(task) for task, state in previous_states.items()
            )
        if not backoff.is_due(urgent=has_ended_task):
            time.sleep(POLL_SECONDS)
            yield previous_states, []
            continue
        queried, now = _query_states(tasks), time.monotonic()
        states = {task: queried[task] for task in tasks}
        changed_tasks = [
            task for task in tasks if task not in previous_states or previous_states[task].name != states[task].name
        ]
        if changed_tasks:
            backoff.reset()
        last_known_times |= {task: now for task, state in states.items() if not state.lost}
        yield states, changed_tasks
        lost_tasks = {
            task for task in tasks if now - last_known_times.setdefault(task, now) > UNKNOWN_JOB_TIMEOUT_SECONDS
        }
        if all(state.finished or task in lost_tasks for task, state in states.items()):
            return
        previous_states = states


def _query_states(tasks: Sequence[Run]) -> dict[Run, State]:
    """Return the states of tasks; a task that submitted itself again has a new job id, also during the query."""
    for task in tasks:
        if (current_task := Run(task.directory)).job_id:
            task.__dict__["submission"] = current_task.submission
    states = schedulers.query_states(tasks)
    has_outdated_state = any(
        states[task].finished and Run(task.directory).job_id not in {task.job_id, None} for task in tasks
    )
    return _query_states(tasks) if has_outdated_state else states


def _has_ended(task: Run) -> bool:
    record = task.end_record()
    return bool(record and not record.may_restart)


def format_change(task: Run, state: State) -> str:
    """Return a line about a task that changed its state; empty for a pending task."""
    if state.name == "PENDING":
        return ""
    details = f" on {state.nodes}" if state.name == "RUNNING" and state.nodes else ""
    if state.finished and state.name != "COMPLETED":
        details = f": {state.reason or 'no reason is known'}; hpcrun why {task.job_id} explains it"
    return f"job {task.job_id} ({format_values(task.values.items())}): {describe_state(state.name)}{details}"


def _cancel(sweep: Run, states: dict[Run, State], interrupts: Interrupts) -> None:
    unfinished_tasks = [task for task, state in states.items() if not state.finished]
    output.message(f"\ncancelling {len(unfinished_tasks)} tasks of {sweep.name} ... (Ctrl+C again: kill them now)")
    stopped_tasks = stop(unfinished_tasks, CancelProgress(lambda: interrupts.count > 1))
    # report the error only if the task has not ended in the meantime
    errors = [
        stopped_task.error
        for stopped_task in stopped_tasks
        if stopped_task.error and not schedulers.query_state(stopped_task.run).finished
    ]
    for error in errors:
        output.message(f"ERROR: {error}")
    if not errors:
        output.message(f"{len(unfinished_tasks)} tasks cancelled; their run directories are in {sweep.directory}")
