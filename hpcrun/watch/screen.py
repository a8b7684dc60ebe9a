"""Full-screen display of a job, redrawn each second and when the terminal is resized."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from hpcrun.watch.view import WatchView
from hpcrun.watch.watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from hpcrun.jobs.runs import Run
    from hpcrun.watch.watcher import WatchState

REDRAW_SECONDS = 1.0


def show_live(run: Run) -> WatchState:
    """Show a job until it ends, and leave its final state on the terminal.

    Args:
        run: The job's run directory.

    Returns:
        The final state.

    Raises:
        KeyboardInterrupt: The user pressed Ctrl+C; the terminal is restored.
    """
    console = Console(highlight=False)
    with (
        _handle_signals(),
        Watcher(run) as watcher,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while not (state := watcher.update()).finished:
            live.update(WatchView(state, full_screen=True), refresh=True)
            signal.sigtimedwait([signal.SIGWINCH], _redraw_interval(state))
    console.print(WatchView(state, full_screen=False))
    return state


def _redraw_interval(state: WatchState) -> float:
    return (
        REDRAW_SECONDS if state.row else REDRAW_SECONDS / 10
    )  # redraw at short intervals until the scheduler's first answer has arrived


@contextmanager
def _handle_signals() -> Iterator[None]:
    """Restore the terminal after SIGTERM, and block SIGWINCH in all threads for `signal.sigtimedwait`."""

    def exit_on_signal(signal_number: int, _: FrameType | None) -> None:
        sys.exit(128 + signal_number)

    previous_handler = signal.signal(signal.SIGTERM, exit_on_signal)
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
        signal.signal(signal.SIGTERM, previous_handler)
