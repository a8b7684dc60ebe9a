"""The tasks of one sweep: which of them somebody means, and how a command may be told of them again."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.jobs import select

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run

MOST_SHOWN = 8
"""So many ids, or ranges of them, are shown of a sweep's tasks in a sentence."""


def together(word: str) -> list[Run]:
    """Return the one run that is meant, or those tasks of one sweep, in their order.

    Args:
        word: ``1234``, ``1234_3``, ``1234_3-7,1234_9``, ``last``, a name or a directory.

    Raises:
        HpcrunError: There is none, or the word means several that were not submitted together.
    """
    found = select.select([word])
    if len(found) > 1 and (len({run.sweep for run in found}) > 1 or found[0].sweep is None):
        first = found[0].sweep or found[0]
        hint = f"name one of them, such as {first.job_id or first.directory}, or tasks of one sweep"
        raise HpcrunError(f"{word} means {len(found)} jobs", hint=hint)
    return sorted(found, key=lambda run: run.number or 0)


def named(tasks: Sequence[Run]) -> str:
    """Return the word that means just these tasks: ``1234``, or ``1234_0-2,1234_5`` where they are not all.

    Args:
        tasks: Tasks of one sweep, in their order.
    """
    sweep = tasks[0].sweep
    if sweep and len(tasks) == len(sweep.tasks):
        return sweep.job_id or sweep.directory.name
    spans = []
    for _, near in groupby(enumerate(tasks), key=lambda item: (item[1].number or 0) - item[0]):
        ids = [task.job_id or task.directory.name for _, task in near]
        of_array = len(ids) > 1 and re.fullmatch(r"\d+_\d+", ids[0])  # those of site local are just process ids
        spans += [f"{ids[0]}-{ids[-1].rpartition('_')[2]}"] if of_array else ids
    return ",".join(spans)


def shown(tasks: Sequence[Run]) -> str:
    """Return what people read of `named`: its beginning, where it is long."""
    words = named(tasks).split(",")
    return ",".join([*words[:MOST_SHOWN], "..."] if len(words) > MOST_SHOWN + 1 else words)
