"""Selection of a sweep's tasks by ids on the command line, and the format of these ids."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.jobs import run_selection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run

MAX_LISTED_IDS = 8
"""Maximum number of job ids or ranges of ids in a message."""


def select_tasks(word: str) -> list[Run]:
    """Return the selected run, or the selected tasks of one sweep in order.

    Args:
        word: ``1234``, ``1234_3``, ``1234_3-7,1234_9``, ``last``, a name or a directory.

    Raises:
        HpcrunError: The argument matches no run, or several runs that are not tasks of one sweep.
    """
    runs = run_selection.select_runs([word])
    if len(runs) > 1 and (len({run.sweep for run in runs}) > 1 or runs[0].sweep is None):
        example = runs[0].sweep or runs[0]
        hint = f"name one of them, such as {example.job_id or example.directory}, or tasks of one sweep"
        raise HpcrunError(f"{word} matches {len(runs)} jobs", hint=hint)
    return sorted(runs, key=lambda run: run.task_number or 0)


def format_task_ids(tasks: Sequence[Run]) -> str:
    """Return the ids that select some tasks of a sweep: ``1234`` for all tasks, else as in ``1234_0-2,1234_5``.

    Args:
        tasks: Tasks of one sweep, in ascending order.
    """
    sweep = tasks[0].sweep
    if sweep and len(tasks) == len(sweep.tasks):
        return sweep.job_id or sweep.directory.name
    ranges = []
    # a resumed task belongs to another array than its neighbours
    numbered_tasks = [(position, task, (task.job_id or "").partition("_")[0]) for position, task in enumerate(tasks)]
    for _, consecutive in groupby(numbered_tasks, key=lambda item: (item[2], (item[1].task_number or 0) - item[0])):
        ids = [task.job_id or task.directory.name for _, task, _ in consecutive]
        is_array = len(ids) > 1 and re.fullmatch(r"\d+_\d+", ids[0])  # on site local, the id of a task is a process id
        ranges += [f"{ids[0]}-{ids[-1].rpartition('_')[2]}"] if is_array else ids
    return ",".join(ranges)


def abbreviate_task_ids(tasks: Sequence[Run]) -> str:
    """Return the result of `format_task_ids`, shortened for messages."""
    ranges = format_task_ids(tasks).split(",")
    return ",".join([*ranges[:MAX_LISTED_IDS], "..."] if len(ranges) > MAX_LISTED_IDS + 1 else ranges)
