"""Display of the progress of a long command: a bar on a terminal, else a line every 30 s."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hpcrun.cli import output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SECONDS_BETWEEN_LINES = 30


@contextmanager
def progress(items_label: str) -> Iterator[Callable[[int, int], None]]:
    """Show the progress on stderr; yield a function of the number of finished items and the number of all items.

    Args:
        items_label: The plural name of the items, such as ``images``.
    """
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(items_label),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(items_label, total=None)
            yield lambda done_count, total_count: bar.update(task, completed=done_count, total=total_count)
    else:
        yield _Lines(items_label).report


class _Lines:
    def __init__(self, items_label: str) -> None:
        self.items_label, self.start_time, self.first_count = items_label, time.monotonic(), -1
        self.last_time = self.start_time

    def report(self, done_count: int, total_count: int) -> None:
        now = time.monotonic()
        if self.first_count < 0:
            self.first_count = done_count
        if now - self.last_time >= _SECONDS_BETWEEN_LINES and done_count > self.first_count:
            self.last_time = now
            seconds_left = (now - self.start_time) / (done_count - self.first_count) * (total_count - done_count)
            minutes = max(1, round(seconds_left / 60))
            output.message(f"{done_count:,} of {total_count:,} {self.items_label}, about {minutes} min left")
