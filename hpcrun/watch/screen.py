"""The picture on a terminal, drawn again each second and whenever the terminal changes its size."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from hpcrun.watch.picture import Watcher
from hpcrun.watch.view import View

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from hpcrun.jobs.runs import Run
    from hpcrun.watch.picture import Picture

SECONDS = 1.0


def show(run: Run) -> Picture:
    """Show a job until it is over, and leave its last picture behind.

    Args:
        run: Its run directory.

    Returns:
        The last picture.

    Raises:
        KeyboardInterrupt: Whoever watches has seen enough; the terminal is as it was before.
    """
    console = Console(highlight=False)
    with (
        _signals(),
        Watcher(run) as watcher,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while not (picture := watcher.look()).over:
            live.update(View(picture, whole=True), refresh=True)
            signal.sigtimedwait([signal.SIGWINCH], _pause(picture))
    console.print(View(picture, whole=False))
    return picture


def _pause(picture: Picture) -> float:
    return SECONDS if picture.row else SECONDS / 10  # the scheduler's first answer is awaited


@contextmanager
def _signals() -> Iterator[None]:
    """Let SIGTERM leave the terminal as it was, and keep SIGWINCH for `signal.sigtimedwait`, from all threads."""

    def leave(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGTERM, before)
