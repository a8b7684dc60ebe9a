"""The progress of a long command: a bar on a terminal, a line now and then elsewhere."""

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
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress on stderr; yield the function to call with the number of items that are done, and of all.

    Args:
        what: The items, such as images.
    """
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(what),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield _Lines(what).report


class _Lines:
    def __init__(self, what: str) -> None:
        self.what, self.begin, self.first = what, time.monotonic(), -1
        self.last = self.begin

    def report(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self.first < 0:
            self.first = done
        if now - self.last >= _SECONDS_BETWEEN_LINES and done > self.first:
            self.last = now
            left = (now - self.begin) / (done - self.first) * (total - done)
            output.message(f"{done:,} of {total:,} {self.what}, about {max(1, round(left / 60))} min left")
