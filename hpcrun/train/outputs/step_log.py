"""Counter of training steps, and log lines in the format of Inception's training program."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING

import keras
import numpy as np

from hpcrun.run.job import print_line
from hpcrun.train.callback_list import to_numbers
from hpcrun.train.ranks.collectives import allreduce
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from hpcrun.train.types import Logs


class StepCounter(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Callback that counts the steps of a `fit`, even if restarts interrupt an epoch."""

    takes_tensor_logs = True

    def __init__(self) -> None:
        super().__init__()
        self.steps_before = 0  # number of steps in complete epochs; saved in checkpoints
        self._epoch = self._batches = 0

    @property
    def _step(self) -> int:
        """Number of steps of the `fit` so far."""
        return self.steps_before + self._batches

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Record the epoch."""
        self._epoch, self._batches = epoch + 1, 0

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Count the previous batches of this epoch, including batches of an earlier process."""
        self._batches = batch

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Count the batch."""
        self._batches = batch + 1

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Add the steps of the epoch."""
        self.steps_before, self._batches = self._step, 0


class StepLog(StepCounter):
    """Callback that prints a log line every few steps on rank 0; it must run on all ranks, whose values it sums.

    ``2026-03-07 12:25:55.206783: step 10, loss = 13.71 (9.4 examples/sec; 3.394 sec/batch)``: the number of steps of
    the training; and the mean loss, images per second, and seconds per batch since the previous line.

    Args:
        every: Number of steps between two lines.
    """

    def __init__(self, step_interval: int) -> None:
        super().__init__()
        self.every = step_interval
        self._start: tuple[float, int, np.ndarray] | None = None  # clock, step and totals at the start of the interval

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """End the timed interval, because validation and saving are not part of a step."""
        super().on_epoch_begin(epoch, logs)
        self._start = None

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Begin a timed interval if none is active."""
        super().on_train_batch_begin(batch, logs)
        if self._start is None:
            self._start = (time.perf_counter(), self._step, self._totals())

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Print the line if the interval is complete."""
        previous_step = self._step
        super().on_train_batch_end(batch, logs)
        if previous_step // self.every == self._step // self.every or self._start is None:
            return
        start_time, start_step, start_totals = self._start
        totals, end_time = self._totals(), time.perf_counter()
        loss_sum, samples = totals - start_totals
        loss = loss_sum / samples if samples else to_numbers(logs).get("loss", float("nan"))
        rate = f"{samples / (end_time - start_time):.1f} examples/sec; " if samples else ""
        seconds = (end_time - start_time) / (self._step - start_step)
        if world().rank == 0:
            clock = datetime.now().isoformat(sep=" ", timespec="microseconds")  # noqa: DTZ005  (as Inception prints it)
            print_line(f"{clock}: step {self._step}, loss = {loss:.2f} ({rate}{seconds:.3f} sec/batch)")
        self._start = (end_time, self._step, totals)

    def _totals(self) -> np.ndarray:
        """Return the sum of losses and the number of samples of this epoch, over all ranks; zeros if unknown."""
        tracker = next((m for m in self.model.metrics if m.name == "loss" and hasattr(m, "count")), None)
        return allreduce(np.array([tracker.total, tracker.count] if tracker else [0, 0], np.float64))
