"""Progress and speed of training, which each rank reports with its heartbeat."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from hpcrun.run.heartbeat_thread import read_heartbeat_seconds, set_details, start_heartbeat
from hpcrun.run.job import count_ranks, find_rank
from hpcrun.run.values import to_json
from hpcrun.run.waiting import waited_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    Logs = dict[str, Any]

MAX_POINTS = 128
"""Maximum number of points of the loss and rate curves; at this number, every second point is dropped."""

SECONDS_BETWEEN_POINTS = 1.0
"""Initial interval between two points."""


class Progress:
    """The progress of a rank; counting a step costs a microsecond.

    A step takes the same time on all ranks, because they wait for the slowest rank. The time that a rank spends without
    waiting for other ranks shows which rank is slow.

    Args:
        fit: The number of the `fit` in the script, from 0.
        convert: A function that converts the metrics of a step to numbers, when they are needed.
    """

    def __init__(self, fit: int = 0, convert: Callable[[Logs], Any] = to_json) -> None:
        self.fit, self._convert = fit, convert
        self.phase, self.epoch, self.step = "starting", 0, 0
        self.epochs: int | None = None
        self.steps: int | None = None
        self.batch_size = 0.0  # global batch size; 0 while unknown
        self._first: tuple[int, int] | None = None  # first epoch and step
        self._logs: Logs = {}
        # number of steps, their duration in seconds, and the part of it spent waiting
        self._totals = self._reported = (0, 0.0, 0.0)
        self._step_times: dict[str, float] = {}
        # time of the last step's end, and seconds waited until then
        self._last_step: tuple[float, float] | None = None
        self._points: list[list[float | None]] = []
        self._between = SECONDS_BETWEEN_POINTS
        self.start()

    def start(self) -> None:
        """Start measuring the time."""
        self._start_time = time.perf_counter()
        self._due = self._start_time + self._between

    def start_epoch(self, epoch: int) -> None:
        """Record the epoch, from 1."""
        self.phase, self.epoch, self.step = "training", epoch, 0
        if self._last_step:  # do not count the time between epochs
            self._last_step = (time.perf_counter(), waited_seconds())

    def end_step(self, step: int, logs: Logs) -> bool:
        """Count a step.

        Args:
            step: The number of completed steps in this epoch.
            logs: The metrics of this rank, as numbers or as tensors.

        Returns:
            Whether it is time for the next point of the curves.
        """
        now, waits = time.perf_counter(), waited_seconds()
        if self._last_step:
            steps, seconds, before = self._totals
            new_steps = step - self.step
            self._totals = (steps + new_steps, seconds + now - self._last_step[0], before + waits - self._last_step[1])
        else:  # do not count the first step, which includes compilation
            self._first = (self.epoch, step - 1)
        self._last_step, self.step, self._logs = (now, waits), step, logs
        return now > self._due

    def add_point(self) -> None:
        """Add a point to the curves, whose length is limited."""
        self._points.append([self._convert(self._logs).get("loss"), self._rate()])
        if len(self._points) > MAX_POINTS:
            self._points = self._points[::2]
            self._between *= 2
        self._due = time.perf_counter() + self._between

    def details(self, *, is_chief: bool) -> Logs:
        """Return the heartbeat's values, with the metrics of this rank.

        Args:
            is_chief: Whether this is rank 0, which reports metrics and curves.
        """
        steps, seconds, waits = self._totals
        if count := steps - self._reported[0]:
            step = (seconds - self._reported[1]) / count
            own_seconds = max(0.0, step - (waits - self._reported[2]) / count)
            self._step_times = {"step_seconds": round(step, 6), "own_seconds": round(own_seconds, 6)}
            self._reported = (steps, seconds, waits)
        details = {"phase": self.phase, "fit": self.fit, "epoch": self.epoch, "epochs": self.epochs}
        details |= {"step": self.step, "steps": self.steps, "first": self._first, **self._step_times}
        if is_chief:
            details["fit_seconds"] = round(time.perf_counter() - self._start_time, 3)
            details["logs"] = to_json(self._convert(self._logs))
            details["points"] = [[_round_loss(loss), rate] for loss, rate in self._points]
            details["images_per_second"] = self._rate()
        return details

    def _rate(self) -> float | None:
        step = self._step_times.get("step_seconds")
        return float(f"{self.batch_size / step:.5g}") if step and self.batch_size else None


def _round_loss(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")


_progress: list[Progress] = []  # the progress of this process, after its first call of heartbeat()


def heartbeat(
    *,
    epoch: int = 0,
    epochs: int | None = None,
    step: int = 0,
    steps: int | None = None,
    batch_size: float = 0,
    phase: str = "training",
    **metrics: Any,
) -> None:
    """Report the progress of this rank after a step.

    The first call starts a thread that writes a heartbeat every 5 s (`$HPCRUN_HEARTBEAT_SECONDS`), even while the
    script waits. A call takes a few microseconds: tensors are converted to numbers only when the thread writes a
    heartbeat. Outside of a job, nothing is written.

    Args:
        epoch: The epoch, from 1.
        epochs: The number of epochs.
        step: The number of completed steps in this epoch.
        steps: The number of steps in an epoch.
        batch_size: The global batch size, from which the rate is computed.
        phase: The phase of the script: `training`, `validation` or `trained`.
        **metrics: Values by name, such as `loss`; the values of rank 0 are shown.
    """
    is_chief = find_rank() == 0
    if not _progress:
        _progress.append(Progress())
        set_details(lambda: _details(is_chief=is_chief))
        start_heartbeat(find_rank(), count_ranks(), read_heartbeat_seconds())
    progress = _progress[0]
    progress.epochs, progress.steps, progress.batch_size = (
        epochs or progress.epochs,
        steps or progress.steps,
        batch_size or progress.batch_size,
    )
    if epoch and epoch != progress.epoch:
        progress.start_epoch(epoch)
    progress.phase = phase
    if step > progress.step:
        detached_metrics = {
            name: value.detach() if hasattr(value, "detach") else value for name, value in metrics.items()
        }
        if progress.end_step(step, detached_metrics) and is_chief:
            progress.add_point()


def _details(*, is_chief: bool) -> Logs:
    """Return the details for the heartbeat, without waiting times, which only hpcrun.train measures."""
    details = _progress[0].details(is_chief=is_chief)
    return {name: value for name, value in details.items() if name != "own_seconds"}
