"""Progress and speed of a `fit`, reported with each rank's heartbeat."""

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
"""Maximum number of points of the loss and rate curves; then every other point is dropped."""

SECONDS_BETWEEN = 1.0
"""Initial interval between two points."""


class ProgressCallback(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Callback that records the values for the heartbeat thread; it costs a microsecond per step.

    A step takes as long on all ranks as on the slowest. The time that a rank does not wait for the others tells them
    apart.

    Args:
        fit: The number of the `fit` in the script, from 0.
    """

    reads_logs_late = True

    def __init__(self, fit: int = 0) -> None:
        super().__init__()
        self.fit = fit
        self._phase, self._epoch, self._step = "starting", 0, 0
        self._first: tuple[int, int] | None = None  # first epoch and step of this `fit`
        self._logs: dict[str, Any] = {}
        self._totals = self._reported = (0, 0.0, 0.0)  # steps, their seconds, seconds waited in them
        self._step_times: dict[str, float] = {}
        self._last_step: tuple[float, float] | None = None  # clock and seconds waited after the last step
        self._batch_size = 0.0  # global batch size; 0 while unknown
        self._points: list[list[float | None]] = []
        self._due = self._between = SECONDS_BETWEEN

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Register with the heartbeat."""
        self._start_time = time.perf_counter()
        self._due += self._start_time
        heartbeat.set_details(self.heartbeat_details)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Record the epoch."""
        self._phase, self._epoch, self._step = "training", epoch + 1, 0
        if (samples_seen := self._model.training_state.samples_seen) is not None:
            samples_seen.assign(0)
        if self._last_step:  # the time between epochs is not a step
            self._last_step = (time.perf_counter(), waited_seconds())

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Count the step."""
        now, waits = time.perf_counter(), waited_seconds()
        if self._last_step:
            steps, seconds, before = self._totals
            new_steps = batch + 1 - self._step
            self._totals = (steps + new_steps, seconds + now - self._last_step[0], before + waits - self._last_step[1])
        else:  # the first step includes compilation
            self._first = (self._epoch, batch)
        self._last_step, self._step, self._logs = (now, waits), batch + 1, logs or {}
        if now > self._due and world().rank == 0:
            self._add_point(now)

    def on_test_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Count samples before validation, which resets the count."""
        self._count()
        self._phase = "validation"

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Count samples, unless validation did."""
        if self._phase == "training":
            self._count()

    def on_train_end(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Record the end of training."""
        self._phase = "trained"

    def heartbeat_details(self) -> Json:
        """Return the heartbeat's values for the `fit`; the logs are those of this rank."""
        steps, seconds, waits = self._totals
        if count := steps - self._reported[0]:
            step = (seconds - self._reported[1]) / count
            own_seconds = max(0.0, step - (waits - self._reported[2]) / count)
            self._step_times = {"step_seconds": round(step, 6), "own_seconds": round(own_seconds, 6)}
            self._reported = (steps, seconds, waits)
        details = {"phase": self._phase, "fit": self.fit, "epoch": self._epoch, "epochs": self.params.get("epochs")}
        details |= {"step": self._step, "steps": self.params.get("steps"), "first": self._first, **self._step_times}
        if world().rank == 0:
            details["fit_seconds"] = round(time.perf_counter() - self._start_time, 3)
            details["logs"] = to_json(to_numbers(self._logs))
            details["points"] = [[_round(loss), rate] for loss, rate in self._points]
            details["images_per_second"] = self._rate()
        return details

    def _count(self) -> None:
        """Compute the global batch size: at the end of an epoch the count covers all ranks, on JAX too."""
        if self._step:
            self._batch_size = samples_trained(self.model) / self._step or self._batch_size

    def _rate(self) -> float | None:
        step = self._step_times.get("step_seconds")
        return float(f"{self._batch_size / step:.5g}") if step and self._batch_size else None

    def _add_point(self, now: float) -> None:
        """Add a point to the curves, whose length is limited."""
        if not self._batch_size and keras.backend.backend() != "jax":  # its state is not readable during an epoch
            self._batch_size = samples_trained(self._model, under_way=True) / self._step
        self._points.append([to_numbers(self._logs).get("loss"), self._rate()])
        if len(self._points) > MAX_POINTS:
            self._points = self._points[::2]
            self._between *= 2
        self._due = now + self._between


def samples_trained(model: keras.Model, *, under_way: bool = False) -> float:
    """Return the number of samples of all ranks in this epoch; 0 if unknown.

    Args:
        model: A compiled model; on JAX, with its state.
        under_way: Whether the epoch is running; its metrics are local to each rank then.
    """
    training_state = model.training_state
    if training_state.samples_seen is not None:  # add the batches before an interruption, which the loss counts
        resumed_factor: float = training_state.batch / max(1, training_state.batch - training_state.skip)
        return float(training_state.samples_seen) * resumed_factor
    if is_custom_step(model, "train_step"):  # its loss may count batches
        return 0.0
    loss = next((m for m in model.metrics if m.name == "loss" and hasattr(m, "count")), None)
    return float(loss.count) * (world().size if under_way else 1) if loss else 0.0


def _round(value: Json) -> Json:
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
