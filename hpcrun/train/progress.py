"""How far and how fast a `fit` is, told with each rank's heartbeat."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import keras

from hpcrun.train.build import is_own
from hpcrun.train.ranks import heartbeat
from hpcrun.train.ranks.waiting import waited
from hpcrun.train.ranks.world import world
from hpcrun.train.result import jsonable

if TYPE_CHECKING:
    from hpcrun.train.kinds import Json, Logs

MOST_POINTS = 128
"""So many points the curves of loss and rate have; then every other one goes."""

SECONDS_BETWEEN = 1.0
"""Between two points, at first."""


class Progress(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Keeps what the heartbeat's thread asks for; a training step costs it a microsecond.

    All ranks take as long as the slowest for a step. What tells them apart is the time of their own: that in which a
    rank does not wait for the others.

    Args:
        fit: Which `fit` of the script it is, from 0.
    """

    async_safe = True  # or Keras would wait for every step's logs

    def __init__(self, fit: int = 0) -> None:
        super().__init__()
        self.fit = fit
        self._phase, self._epoch, self._step = "starting", 0, 0
        self._first: tuple[int, int] | None = None  # the epoch and step that this `fit` began with
        self._logs: dict[str, Any] = {}
        self._totals = self._told = (0, 0.0, 0.0)  # steps, their seconds, those of them in which this rank waited
        self._pace: dict[str, float] = {}
        self._mark: tuple[float, float] | None = None  # the clock, and the time waited, after the step before
        self._batch = 0.0  # samples a step, of all ranks; 0 while nobody knows
        self._points: list[list[float | None]] = []
        self._due = self._between = SECONDS_BETWEEN

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Begin to tell."""
        self._begun = time.perf_counter()
        self._due += self._begun
        heartbeat.tells(self.figures)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Note the epoch."""
        self._phase, self._epoch, self._step = "training", epoch + 1, 0
        if (seen := self._model.course.seen) is not None:
            seen.assign(0)
        if self._mark:  # what came in between was no step
            self._mark = (time.perf_counter(), waited())

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Count the step."""
        now, waits = time.perf_counter(), waited()
        if self._mark:
            steps, seconds, before = self._totals
            more = batch + 1 - self._step
            self._totals = (steps + more, seconds + now - self._mark[0], before + waits - self._mark[1])
        else:  # the first step, which compiles
            self._first = (self._epoch, batch)
        self._mark, self._step, self._logs = (now, waits), batch + 1, logs or {}
        if now > self._due and world().rank == 0:
            self._add_point(now)

    def on_test_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Count before validation, which takes its time and counts samples of its own."""
        self._count()
        self._phase = "validation"

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Count, where there was no validation."""
        if self._phase == "training":
            self._count()

    def on_train_end(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Note that it is over."""
        self._phase = "trained"

    def figures(self) -> Json:
        """Return what a heartbeat says of the `fit`; the logs are this rank's own."""
        steps, seconds, waits = self._totals
        if count := steps - self._told[0]:
            step = (seconds - self._told[1]) / count
            own = max(0.0, step - (waits - self._told[2]) / count)
            self._pace = {"step_seconds": round(step, 6), "own_seconds": round(own, 6)}
            self._told = (steps, seconds, waits)
        told = {"phase": self._phase, "fit": self.fit, "epoch": self._epoch, "epochs": self.params.get("epochs")}
        told |= {"step": self._step, "steps": self.params.get("steps"), "first": self._first, **self._pace}
        if world().rank == 0:
            told |= {"fit_seconds": round(time.perf_counter() - self._begun, 3), "logs": jsonable(self._logs)}
            told["points"] = [[_short(loss), rate] for loss, rate in self._points]
            told["images_per_second"] = self._rate()
        return told

    def _count(self) -> None:
        """Learn how many samples a step has: at the end of an epoch their count is all ranks', on JAX too."""
        if self._step:
            self._batch = samples(self.model) / self._step or self._batch

    def _rate(self) -> float | None:
        step = self._pace.get("step_seconds")
        return float(f"{self._batch / step:.5g}") if step and self._batch else None

    def _add_point(self, now: float) -> None:
        """Add to the curves, which have room for a training of any length."""
        if not self._batch and keras.backend.backend() != "jax":  # whose state is out of reach during an epoch
            self._batch = samples(self._model, under_way=True) / self._step
        self._points.append([self._logs.get("loss"), self._rate()])
        if len(self._points) > MOST_POINTS:
            self._points = self._points[::2]
            self._between *= 2
        self._due = now + self._between


def samples(model: keras.Model, *, under_way: bool = False) -> float:
    """Return how many samples this epoch has trained on, over all ranks; 0 where that is not known.

    Args:
        model: A compiled model; on JAX, with its state.
        under_way: Whether the epoch goes on; its metrics are each rank's own then.
    """
    course = model.course
    if course.seen is not None:  # not those before an interruption; the loss counts them
        whole: float = course.batch / max(1, course.batch - course.skip)
        return float(course.seen) * whole
    if is_own(model, "train_step"):  # whose loss may count batches
        return 0.0
    loss = next((m for m in model.metrics if m.name == "loss" and hasattr(m, "count")), None)
    return float(loss.count) * (world().size if under_way else 1) if loss else 0.0


def _short(value: Json) -> Json:
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
