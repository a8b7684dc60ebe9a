"""Watch a sweep: a table of its tasks on a terminal, or a line for each task that starts or ends."""

from __future__ import annotations

import time
from collections import Counter
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from hpcrun.cli import output, status
from hpcrun.cli.follow_sweep import exit_codes, format_change, poll_until_all_ended
from hpcrun.cli.result import show_results
from hpcrun.jobs import states, status_rows
from hpcrun.jobs.sweep_tasks import format_task_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.states import State
    from hpcrun.jobs.status_rows import StatusRow

REFRESH_SECONDS = 2.0
"""The interval in s at which the table is redrawn; the scheduler is queried less often."""

HEADER_LINES = 4


def watch(tasks: Sequence[Run], *, is_terminal: bool) -> int:
    """Show tasks of a sweep until all tasks have ended.

    Args:
        tasks: The tasks in order of their numbers.
        is_terminal: Whether stdout is a terminal that can be redrawn.

    Returns:
        The exit code of the first task that failed, else 0.
    """
    states_by_task: dict[Run, State] = {}
    last_drawn = -REFRESH_SECONDS
    for states_by_task, changed_tasks in poll_until_all_ended(tasks):
        if is_terminal and (changed_tasks or time.monotonic() - last_drawn >= REFRESH_SECONDS):
            last_drawn = time.monotonic()
            _draw_table(tasks, states_by_task)
        elif not is_terminal:
            summary = [f"{len(tasks)} tasks of {tasks[0].name}: {_count_states(states_by_task)}"] * (
                len(changed_tasks) == len(tasks)
            )
            for line in filter(
                None, [*summary, *(format_change(task, states_by_task[task]) for task in changed_tasks)]
            ):
                output.show(f"{time.strftime('%H:%M:%S')}  {line}")
    if any(task.result_values() for task in tasks):
        show_results(tasks)
    codes = exit_codes(states_by_task)
    if failed_count := sum(map(bool, codes)):
        output.message(
            f"{failed_count} of {len(tasks)} tasks did not complete; hpcrun why {format_task_ids(tasks)} explains why"
        )
    return next(filter(None, codes), 0)


def _draw_table(tasks: Sequence[Run], states_by_task: dict[Run, State]) -> None:
    """Draw the table; if it does not fit the terminal, running and failed tasks come first."""
    table = status_rows.build_rows(tasks, lambda _: states_by_task)
    if len(table) + HEADER_LINES > get_terminal_size().lines:
        table.sort(key=_sort_key)
    now = time.strftime("%H:%M:%S")
    header = (
        f"{len(tasks)} tasks of {tasks[0].name}: {_count_states(states_by_task)}; {now}; "
        "Ctrl+C stops watching, not the tasks"
    )
    text = output.text(status.COLUMNS, map(status.cells, table), optional_columns=status.OPTIONAL_COLUMNS)
    output.screen([header, *text.splitlines()])


def _sort_key(row: StatusRow) -> int:
    if row.finished:
        return 3 if row.state == "COMPLETED" else 1
    return 2 if row.state == "PENDING" else 0


def _count_states(states_by_task: dict[Run, State]) -> str:
    counts = Counter(state.name for state in states_by_task.values())
    return ", ".join(f"{count} {states.describe_state(name)}" for name, count in counts.items())
