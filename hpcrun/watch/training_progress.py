"""Progress, speed and remaining time of a training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hpcrun.jobs.progress_text import STOPPED_EARLY
from hpcrun.jobs.run_files import Epoch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.heartbeats import Heartbeat

RECENT_EPOCHS = 5
"""Number of recent epochs that estimate the next ones, without heartbeats."""


@dataclass(frozen=True)
class TrainingProgress:
    """The progress of a training; unknown values are 0, None or empty.

    Attributes:
        fit: The number of the current ``fit`` in the script, from 0.
        epoch: The epoch, from 1; 0 before the first.
        epochs: The total number of epochs.
        step: Completed steps of the epoch; 0 after its end.
        steps: Steps per epoch.
        phase: ``training``, ``validation``, ``trained``.
        done: The completed part of the training, 0 to 1.
        seconds_left: The estimated remaining time.
        images_per_second: The rate.
        step_seconds: The time per step.
        metrics: The newest metrics: of the epoch that goes on (rank 0's own), and of the last one (all ranks').
        losses: The loss in the course of time; None where it is no finite number.
        rates: Images a second, likewise.
    """

    fit: int = 0
    epoch: int = 0
    epochs: int = 0
    step: int = 0
    steps: int = 0
    phase: str = ""
    done: float | None = None
    seconds_left: float | None = None
    images_per_second: float = 0.0
    step_seconds: float = 0.0
    metrics: dict[str, object] = field(default_factory=dict)
    losses: list[float | None] = field(default_factory=list)
    rates: list[float | None] = field(default_factory=list)

    @property
    def position(self) -> str:
        """The current position as text: ``fit 2, epoch 3/90, step 40/390``."""
        words = [f"fit {self.fit + 1}"] if self.fit else []
        words += [f"epoch {self.epoch}" + (f"/{self.epochs}" if self.epochs else "")]
        if self.phase == "validation":
            words.append("validation")
        elif self.phase == "trained" and self.epoch < self.epochs:
            words.append(STOPPED_EARLY)
        elif self.step and self.phase != "trained":
            words.append(f"step {self.step}" + (f"/{self.steps}" if self.steps else ""))
        return ", ".join(words)


def measure_progress(
    metrics: Sequence[Epoch], heartbeat: Heartbeat | None, *, newer: bool, age: float
) -> TrainingProgress:
    """Measure the progress of a training.

    Args:
        metrics: The lines of ``metrics.jsonl``, of all calls of ``fit``.
        heartbeat: Rank 0's latest heartbeat, if any.
        newer: Whether the heartbeat is newer than the last line.
        age: The age of the heartbeat in s.
    """
    fit = positive_integer(metrics[-1].fit) if metrics else 0
    if heartbeat and heartbeat.epoch and newer:
        fit = heartbeat.fit
    metrics = [entry for entry in metrics if positive_integer(entry.fit) == fit]
    heartbeat = heartbeat if heartbeat and heartbeat.fit == fit else None
    last = metrics[-1] if metrics else Epoch()
    epoch, epochs, figures = positive_integer(last.epoch), positive_integer(last.epochs), last.metrics
    rate, step, steps, phase = positive_rate(last.images_per_second), 0, 0, "epoch over" if last.all_values else ""
    if heartbeat and heartbeat.epoch and (newer or not last.all_values):
        epoch, epochs, phase = heartbeat.epoch, heartbeat.epochs, heartbeat.phase
        step, steps = heartbeat.step, heartbeat.steps
        rate = heartbeat.images_per_second or rate
        if phase != "trained" or not last.all_values:  # after training, the metrics of all ranks count
            figures |= heartbeat.logs
    fraction = step / steps if steps else 0.0
    epochs_done = float(epoch) if phase == "epoch over" else max(epoch - 1 + min(fraction, 1.0), 0)
    if phase == "trained":  # perhaps before the last epoch, by a callback such as EarlyStopping
        epochs_done = float(epochs or epoch)
    done = min(epochs_done / epochs, 1.0) if epochs and epoch else None
    points = heartbeat.points if heartbeat else []
    losses, rates = _find_curves(metrics, points)
    return TrainingProgress(
        fit=fit, epoch=epoch, epochs=epochs, step=step, steps=steps, phase=phase, done=done,
        seconds_left=_estimate_seconds_left(metrics, heartbeat, epochs_done, epochs, age), images_per_second=rate,
        step_seconds=heartbeat.step_seconds if heartbeat else 0.0, metrics=figures, losses=losses, rates=rates,
    )  # fmt: skip


def _estimate_seconds_left(
    metrics: Sequence[Epoch], heartbeat: Heartbeat | None, epochs_done: float, epochs: int, age: float
) -> float | None:
    """Estimate the remaining seconds, with validation; return None while there is no estimate."""
    if not epochs:
        return None
    if epochs_done >= epochs:
        return 0.0
    if heartbeat and heartbeat.epoch:
        first = _epochs_before_fit(heartbeat)
        if epochs_done - first >= 1:
            return max(0.0, (heartbeat.fit_seconds + age) * (epochs - epochs_done) / (epochs_done - first))
        # within the first epoch, the first step, which compiles, would distort the estimate
        return heartbeat.step_seconds * heartbeat.steps * (epochs - epochs_done) or None
    took = [entry.seconds for entry in metrics[-RECENT_EPOCHS:] if entry.seconds is not None]
    return sum(took) / len(took) * (epochs - epochs_done) if took else None


def _epochs_before_fit(heartbeat: Heartbeat) -> float:
    """Return the number of epochs completed before the ``fit`` began."""
    if len(heartbeat.first) != 2 or not all(isinstance(part, int) for part in heartbeat.first):
        return 0.0
    return heartbeat.first[0] - 1 + (heartbeat.first[1] / heartbeat.steps if heartbeat.steps else 0.0)


def _find_curves(
    metrics: Sequence[Epoch], points: Sequence[Sequence[float | None]]
) -> tuple[list[float | None], list[float | None]]:
    """Return losses and rates from ``metrics.jsonl`` or from the heartbeat, whichever has more points."""
    valid = [point for point in points if len(point) == 2]
    if len(valid) > len(metrics):
        return [_finite_number(point[0]) for point in valid], [
            _finite_number(rate) for _, rate in valid if rate is not None
        ]
    losses = [entry.all_values["loss"] for entry in metrics if "loss" in entry.all_values]
    rates = [entry.images_per_second for entry in metrics if "images_per_second" in entry.all_values]
    return [_finite_number(loss) for loss in losses], [_finite_number(rate) for rate in rates]


def positive_integer(value: object) -> int:
    """Return a positive integer unchanged, and 0 for other values.

    Args:
        value: Anything.
    """
    return value if isinstance(value, int) and value > 0 else 0


def positive_rate(value: object) -> float:
    """Return a positive number as float, and 0 for other values.

    Args:
        value: Anything.
    """
    return float(value) if isinstance(value, int | float) and value > 0 else 0.0


def _finite_number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and abs(value) < float("inf") else None
