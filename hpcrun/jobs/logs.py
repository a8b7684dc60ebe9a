"""Reading a job's logs while it runs."""

from __future__ import annotations

import time
from codecs import getincrementaldecoder
from typing import TYPE_CHECKING

from hpcrun.jobs.states import stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.states import State

POLL_SECONDS = 0.1
QUERY_SECONDS = 2.0


class Tail:
    """A file that grows.

    Args:
        file: The file; it need not exist yet.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.position = 0
        self.decoder = getincrementaldecoder("utf-8")("replace")

    def new(self) -> str:
        """Return what was appended since the last call, whole characters only."""
        try:
            with self.file.open("rb") as stream:
                stream.seek(self.position)
                data = stream.read()
        except FileNotFoundError:
            return ""
        self.position += len(data)
        return self.decoder.decode(data)


def until_ended(
    run: Run, ask: Callable[[Run], State], see: Callable[[State], None] = lambda _state: None
) -> Iterator[None]:
    """Yield every `POLL_SECONDS` until a job has ended, and once more after that.

    The job's own exit record says so at once; the scheduler is asked every `QUERY_SECONDS` of jobs that left none, or
    that it stopped itself and may start again.

    Args:
        run: The run.
        ask: Asks the scheduler for the run's state.
        see: Gets each state that the scheduler tells.
    """
    asked = 0.0
    while True:
        record = run.ended()
        ended = record is not None and not (run.scheduler == "slurm" and stopped(record))
        if not ended and time.monotonic() - asked >= QUERY_SECONDS:
            asked = time.monotonic()
            state = ask(run)
            see(state)
            ended = state.finished
        yield
        if ended:
            return
        time.sleep(POLL_SECONDS)
