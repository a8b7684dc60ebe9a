"""Following the tasks of a sweep to their end: a line for each that begins or ends, and a table of all figures."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hpcrun import schedulers
from hpcrun.cli import output
from hpcrun.cli.follow import Interrupts, exit_code
from hpcrun.cli.jobs import show_results
from hpcrun.cli.stopping import Progress
from hpcrun.jobs.logs import LOST_SECONDS, POLL_SECONDS
from hpcrun.jobs.pace import Pace
from hpcrun.jobs.states import plain
from hpcrun.schedulers.stopping import stop
from hpcrun.sweep import words

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterator, Mapping, Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.states import State

LOOK_SECONDS = 1.0
"""So often the run directories of tasks that run are looked at: their ends are seen before Slurm is asked again."""


def follow(sweep: Run, *, ends_with: tuple[signal.Signals, ...], as_json: bool) -> int:
    """Submit a sweep and tell of its tasks until all have ended.

    Args:
        sweep: A sweep's directory that is ready to be submitted.
        ends_with: Signals to this process that end the tasks.
        as_json: Print one JSON value at the end.

    Returns:
        The exit code of the first task that failed, else 0; 128 and the signal's number where one ended them.
    """
    interrupts = Interrupts(ends_with)
    schedulers.of(sweep).submit(sweep)
    states: dict[Run, State] = {}
    for states, new in until_ended(sweep.tasks):
        for task in new:
            if line := news(task, states[task]):
                output.message(line)
        if interrupts.received:
            _cancel(sweep, states, interrupts)
            break
    codes = exit_codes(states)
    if as_json:
        hows = zip(states.items(), codes, strict=True)
        tasks = [
            {**task.facts(), "state": state.name, "exit_code": code, "result": task.result()}
            for (task, state), code in hows
        ]
        output.value({**sweep.facts(), "tasks": tasks})
    elif any(task.result() for task in sweep.tasks):
        show_results(sweep.tasks)
    return 128 + interrupts.received if interrupts.received else next(filter(None, codes), 0)


def exit_codes(states: Mapping[Run, State]) -> list[int]:
    """Return the tasks' exit codes, in their order."""
    return [exit_code(task, state) for task, state in states.items()]


def until_ended(tasks: Sequence[Run]) -> Iterator[tuple[dict[Run, State], list[Run]]]:
    """Yield the tasks' states every `POLL_SECONDS`, and whose are new, until all have ended or Slurm lost them.

    Args:
        tasks: Tasks of one sweep, all of them submitted.
    """
    before: dict[Run, State] = {}
    known: dict[Run, float] = {}
    pace, looked = Pace(tasks), time.monotonic()
    while True:
        ended = False
        if time.monotonic() - looked >= LOOK_SECONDS:
            looked = time.monotonic()
            ended = any(state.name == "RUNNING" and _ended(task) for task, state in before.items())
        if not pace.due(hurry=ended):
            time.sleep(POLL_SECONDS)
            yield before, []
            continue
        told, now = schedulers.states(tasks), time.monotonic()
        states = {task: told[task] for task in tasks}
        new = [task for task, state in states.items() if task not in before or before[task].name != state.name]
        if new:
            pace.changed()
        known |= {task: now for task, state in states.items() if not state.lost}
        yield states, new
        if all(state.finished or now - known.setdefault(task, now) > LOST_SECONDS for task, state in states.items()):
            return
        before = states


def _ended(task: Run) -> bool:
    record = task.ended()
    return bool(record and not record.may_go_on)


def news(task: Run, state: State) -> str:
    """Return what to say of a task that has come into a state; nothing where it waits."""
    if state.name == "PENDING":
        return ""
    more = f" on {state.nodes}" if state.name == "RUNNING" and state.nodes else ""
    if state.finished and state.name != "COMPLETED":
        more = f": {state.reason or 'no reason is known'}; hpcrun why {task.job_id} tells more"
    return f"job {task.job_id} ({words(task.values.items())}): {plain(state.name)}{more}"


def _cancel(sweep: Run, states: dict[Run, State], interrupts: Interrupts) -> None:
    left = [task for task, state in states.items() if not state.finished]
    output.message(f"\ncancelling {len(left)} tasks of {sweep.name} ... (Ctrl+C again: at once)")
    stops = stop(left, Progress(lambda: interrupts.count > 1))
    # a task may have ended meanwhile
    faults = [each.error for each in stops if each.error and not schedulers.state(each.run).finished]
    for fault in faults:
        output.message(f"ERROR: {fault}")
    if not faults:
        output.message(f"{len(left)} tasks cancelled; their run directories are in {sweep.directory}")
