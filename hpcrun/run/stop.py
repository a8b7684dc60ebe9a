"""The signals that ask a job to write a checkpoint and exit."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Self

SIGNALS = (signal.SIGTERM, signal.SIGUSR2)
"""Of `hpcrun cancel` and of a preemption; before the time limit (docs/restart.md)."""


class StopSignals:
    """The stop signals of this process, which are recorded instead of ending it.

    Args:
        on_signal: Called by the handler of a signal.
    """

    def __init__(self, on_signal: Callable[[], object] = lambda: None) -> None:
        self.received = 0
        self._on_signal = on_signal
        self._previous: dict[signal.Signals, object] = {}

    def install(self) -> None:
        """Handle the signals from now on; Python allows it in the main thread only."""
        if threading.current_thread() is threading.main_thread() and not self._previous:
            self._previous = {number: signal.signal(number, self._record) for number in SIGNALS}

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal returned
        self._previous = {}

    def _record(self, number: int, _: FrameType | None) -> None:
        self.received = number
        self._on_signal()


_signals = StopSignals()


def checkpoint_requested() -> int:
    """Return the signal by which the job is to write a checkpoint and exit: near its time limit, or when cancelled.

    The first call installs handlers of SIGTERM and SIGUSR2, in the main thread; without it, these end the process. The
    signal may reach the ranks in different steps, so that they have to agree on one: docs/run.md.

    Returns:
        The number of the signal, with which a program that was stopped exits: 128 + number; 0 without one.
    """
    _signals.install()
    return _signals.received
