"""A sweep live: a table of its tasks on a terminal, and elsewhere a line for each that begins or ends."""

from __future__ import annotations

import time
from collections import Counter
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from hpcrun.cli import output, status
from hpcrun.cli.follow_sweep import exit_codes, news, until_ended
from hpcrun.cli.jobs import show_results
from hpcrun.jobs import rows, states
from hpcrun.jobs.sweeps import named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.rows import Row
    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.states import State

SECONDS = 2.0
"""So often the table is drawn again: how far trainings are, their files say; the scheduler is asked seldom."""

HEAD_LINES = 4


def watch(tasks: Sequence[Run], *, live: bool) -> int:
    """Show tasks of a sweep until all have ended.

    Args:
        tasks: They, in their order.
        live: Whether stdout is a terminal that can be redrawn.

    Returns:
        The exit code of the first task that failed, else 0.
    """
    told: dict[Run, State] = {}
    drawn = -SECONDS
    for told, new in until_ended(tasks):
        if live and (new or time.monotonic() - drawn >= SECONDS):
            drawn = time.monotonic()
            _draw(tasks, told)
        elif not live:
            first = [f"{len(tasks)} tasks of {tasks[0].name}: {_counts(told)}"] * (len(new) == len(tasks))
            for line in filter(None, [*first, *(news(task, told[task]) for task in new)]):
                output.show(f"{time.strftime('%H:%M:%S')}  {line}")
    if any(task.result() for task in tasks):
        show_results(tasks)
    codes = exit_codes(told)
    if failed := sum(map(bool, codes)):
        output.message(f"{failed} of {len(tasks)} tasks did not complete; hpcrun why {named(tasks)} tells why")
    return next(filter(None, codes), 0)


def _draw(tasks: Sequence[Run], told: dict[Run, State]) -> None:
    """Draw the table; where it does not fit, what goes on and what failed stands first."""
    found = rows.rows(tasks, lambda _: told)
    if len(found) + HEAD_LINES > get_terminal_size().lines:
        found.sort(key=_place)
    now = time.strftime("%H:%M:%S")
    head = f"{len(tasks)} tasks of {tasks[0].name}: {_counts(told)}; {now}; Ctrl+C ends the watching, not the tasks"
    output.screen([head, *output.text(status.COLUMNS, map(status.cells, found)).splitlines()])


def _place(row: Row) -> int:
    if row.finished:
        return 3 if row.state == "COMPLETED" else 1
    return 2 if row.state == "PENDING" else 0


def _counts(told: dict[Run, State]) -> str:
    return ", ".join(f"{count} {states.plain(name)}" for name, count in Counter(s.name for s in told.values()).items())
