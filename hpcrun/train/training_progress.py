"""Progress and speed of a `fit`, as part of each rank's heartbeat."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import keras

from hpcrun.train.build import is_custom_step
from hpcrun.train.callback_list import to_numbers
from hpcrun.train.ranks import heartbeat
from hpcrun.train.ranks.waiting import waited_seconds
from hpcrun.train.ranks.world import world
from hpcrun.train.result import to_json

if TYPE_CHECKING:
    from hpcrun.train.types import Json, Logs

MAX_POINTS = 128
"""Maximum number of points of the curves of loss and rate; if exceeded, every second point is dropped."""

SECONDS_BETWEEN_POINTS = 1.0
"""Initial interval between two points of a curve, in seconds."""


class ProgressCallback(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Callback that records values for the heartbeat thread; takes a microsecond per step.

    A step takes the same time on all ranks, because all ranks wait for the slowest. The part of this time in which a
    rank does not wait for other ranks shows which rank is slow.

    Args:
        fit: Number of the `fit` in the script, from 0.
    """

    reads_logs_late = True

    def __init__(self, fit: int = 0) -> None:
        super().__init__()
        self.fit = fit
        self._phase, self._epoch, self._step = "starting", 0, 0
        self._first_step: tuple[int, int] | None = None  # first epoch and step of this `fit`
        self._logs: dict[str, Any] = {}
        self._totals = self._reported_totals = (
            0,
            0.0,
            0.0,
        )  # number of steps, their seconds, and the seconds waited for other ranks
        self._step_times: dict[str, float] = {}
        self._last_step: tuple[float, float] | None = None  # clock and waited seconds at the end of the last step
        self._batch_size = 0.0  # global batch size; 0 while unknown
        self._points: list[list[float | None]] = []
        self._next_point_time = self._point_interval = SECONDS_BETWEEN_POINTS

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Set the function that returns the details of heartbeats."""
        self._start_time = time.perf_counter()
        self._next_point_time += self._start_time
        heartbeat.set_details(self.heartbeat_details)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Record the number of the epoch, and reset counters."""
        self._phase, self._epoch, self._step = "training", epoch + 1, 0
        if (samples_seen := self._model.training_state.samples_seen) is not None:
            samples_seen.assign(0)
        if self._last_step:  # the time between epochs is not a step
            self._last_step = (time.perf_counter(), waited_seconds())

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Add the step to the totals, and a point to the curves if it is time."""
        clock, waited = time.perf_counter(), waited_seconds()
        if self._last_step:
            steps, seconds, waited_before = self._totals
            new_steps = batch + 1 - self._step
            self._totals = (
                steps + new_steps,
                seconds + clock - self._last_step[0],
                waited_before + waited - self._last_step[1],
            )
        else:  # the first step includes compilation
            self._first_step = (self._epoch, batch)
        self._last_step, self._step, self._logs = (clock, waited), batch + 1, logs or {}
        if clock > self._next_point_time and world().rank == 0:
            self._add_point(clock)

    def on_test_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Compute the batch size before validation, which resets the count of samples."""
        self._compute_batch_size()
        self._phase = "validation"

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Compute the batch size, unless it was computed before validation."""
        if self._phase == "training":
            self._compute_batch_size()

    def on_train_end(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Record that the training has ended."""
        self._phase = "trained"

    def heartbeat_details(self) -> Json:
        """Return the details of a heartbeat; the logs cover only this rank."""
        steps, seconds, waited = self._totals
        if count := steps - self._reported_totals[0]:
            step = (seconds - self._reported_totals[1]) / count
            own_seconds = max(0.0, step - (waited - self._reported_totals[2]) / count)
            self._step_times = {"step_seconds": round(step, 6), "own_seconds": round(own_seconds, 6)}
            self._reported_totals = (steps, seconds, waited)
        details = {"phase": self._phase, "fit": self.fit, "epoch": self._epoch, "epochs": self.params.get("epochs")}
        details |= {
            "step": self._step,
            "steps": self.params.get("steps"),
            "first": self._first_step,
            **self._step_times,
        }
        if world().rank == 0:
            details["fit_seconds"] = round(time.perf_counter() - self._start_time, 3)
            details["logs"] = to_json(to_numbers(self._logs))
            details["points"] = [[_round(loss), rate] for loss, rate in self._points]
            details["images_per_second"] = self._rate()
        return details

    def _compute_batch_size(self) -> None:
        """Compute the global batch size at the end of an epoch, when the count of samples covers all ranks."""
        if self._step:
            self._batch_size = samples_trained(self.model) / self._step or self._batch_size

    def _rate(self) -> float | None:
        step = self._step_times.get("step_seconds")
        return float(f"{self._batch_size / step:.5g}") if step and self._batch_size else None

    def _add_point(self, clock: float) -> None:
        """Add a point to the curves of loss and rate, and limit their length."""
        if (
            not self._batch_size and keras.backend.backend() != "jax"
        ):  # on JAX, the state is not readable during an epoch
            self._batch_size = samples_trained(self._model, in_epoch=True) / self._step
        self._points.append([to_numbers(self._logs).get("loss"), self._rate()])
        if len(self._points) > MAX_POINTS:
            self._points = self._points[::2]
            self._point_interval *= 2
        self._next_point_time = clock + self._point_interval


def samples_trained(model: keras.Model, *, in_epoch: bool = False) -> float:
    """Return the number of samples of all ranks in this epoch; 0 if unknown.

    Args:
        model: A compiled model.
        in_epoch: Whether the epoch is running, so that metrics cover only this rank.
    """
    training_state = model.training_state
    if training_state.samples_seen is not None:  # includes the batches before a restart, as the loss does
        resumed_factor: float = training_state.batch / max(1, training_state.batch - training_state.skip)
        return float(training_state.samples_seen) * resumed_factor
    if is_custom_step(model, "train_step"):  # the loss metric of a custom step may count batches
        return 0.0
    loss = next((m for m in model.metrics if m.name == "loss" and hasattr(m, "count")), None)
    return float(loss.count) * (world().size if in_epoch else 1) if loss else 0.0


def _round(value: Json) -> Json:
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
