"""Signals that tell a job to write a checkpoint and exit."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Self

SIGNALS = (signal.SIGTERM, signal.SIGUSR2)
"""SIGTERM: `hpcrun cancel` or a preemption; SIGUSR2: the time limit is near (docs/restart.md)."""


class StopSignals:
    """Handlers of this process that record stop signals instead of ending the process.

    Args:
        on_signal: Function that the signal handler calls.
    """

    def __init__(self, on_signal: Callable[[], object] = lambda: None) -> None:
        self.received = 0
        self._on_signal = on_signal
        self._previous: dict[signal.Signals, object] = {}

    def install(self) -> None:
        """Install the signal handlers; Python allows this only in the main thread."""
        if threading.current_thread() is threading.main_thread() and not self._previous:
            self._previous = {number: signal.signal(number, self._record) for number in SIGNALS}

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # the handler that signal.signal returned
        self._previous = {}

    def _record(self, signal_number: int, _: FrameType | None) -> None:
        self.received = signal_number
        self._on_signal()


_signals = StopSignals()


def checkpoint_requested() -> int:
    """Return the signal that tells the job to write a checkpoint and exit, near its time limit or when cancelled.

    The first call, in the main thread, installs handlers of SIGTERM and SIGUSR2; before that call, these signals end
    the process. The signal may reach the ranks in different steps, so the ranks must agree on a step; see docs/run.md.

    Returns:
        The number of the signal; 0 if there was none. A stopped program exits with code 128 + number.
    """
    _signals.install()
    return _signals.received
