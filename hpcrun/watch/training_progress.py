"""Progress, speed and remaining time of training."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from hpcrun.frozen import frozen
from hpcrun.jobs.progress_text import STOPPED_EARLY
from hpcrun.jobs.run_files import Epoch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.heartbeats import Heartbeat

RECENT_EPOCHS = 5
"""Number of recent epochs from which the remaining time is estimated if there are no heartbeats."""


@frozen
class TrainingProgress:
    """The progress of training; unknown values are 0, None or empty.

    Attributes:
        fit: Index of the current ``fit`` call in the script, from 0.
        epoch: Number of the epoch, from 1; 0 before the first epoch.
        epochs: Total number of epochs.
        step: Number of completed steps of the epoch; 0 after its end.
        steps: Number of steps per epoch.
        phase: ``training``, ``validation``, ``trained`` (after the last epoch), or ``epoch over`` (between epochs).
        done: The completed fraction of the training, from 0 to 1.
        seconds_left: The estimated remaining time in s.
        images_per_second: The training rate of all ranks together.
        step_seconds: The time per step in s.
        communication_share: The part of a step in which rank 0 communicates or waits for other ranks; 0 if unknown.
        sent_bytes: How many bytes of gradients rank 0 sends per step.
        codec: The name of the codec in which rank 0 sends gradients; empty if unknown.
        metrics: The newest metrics: of the last epoch (all ranks), and of the current epoch (rank 0).
        losses: The loss over time; None for values that are not finite.
        rates: The training rate over time, in images/s; None for values that are not finite.
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
    communication_share: float = 0.0
    sent_bytes: float = 0.0
    codec: str = ""
    metrics: dict[str, object] = field(default_factory=dict)
    losses: list[float | None] = field(default_factory=list)
    rates: list[float | None] = field(default_factory=list)

    @property
    def position(self) -> str:
        """The current position as text: ``fit 2, epoch 3/90, step 40/390``."""
        parts = [f"fit {self.fit + 1}"] if self.fit else []
        parts += [f"epoch {self.epoch}" + (f"/{self.epochs}" if self.epochs else "")]
        if self.phase == "validation":
            parts.append("validation")
        elif self.phase == "trained" and self.epoch < self.epochs:
            parts.append(STOPPED_EARLY)
        elif self.step and self.phase != "trained":
            parts.append(f"step {self.step}" + (f"/{self.steps}" if self.steps else ""))
        return ", ".join(parts)


def measure_progress(
    metrics: Sequence[Epoch], heartbeat: Heartbeat | None, *, is_newer: bool, heartbeat_age: float
) -> TrainingProgress:
    """Measure the progress of training.

    Args:
        metrics: The lines of ``metrics.jsonl``, of all calls of ``fit``.
        heartbeat: Rank 0's latest heartbeat, if any.
        is_newer: Whether the heartbeat is newer than the last line of ``metrics.jsonl``.
        heartbeat_age: The age of the heartbeat in s.
    """
    fit = positive_integer(metrics[-1].fit) if metrics else 0
    if heartbeat and heartbeat.epoch and is_newer:
        fit = heartbeat.fit
    metrics = [entry for entry in metrics if positive_integer(entry.fit) == fit]
    heartbeat = heartbeat if heartbeat and heartbeat.fit == fit else None
    last_epoch = metrics[-1] if metrics else Epoch()
    epoch, epochs, shown_metrics = (
        positive_integer(last_epoch.epoch),
        positive_integer(last_epoch.epochs),
        last_epoch.metrics,
    )
    rate, step, steps, phase = (
        positive_rate(last_epoch.images_per_second),
        0,
        0,
        "epoch over" if last_epoch.all_values else "",
    )
    if heartbeat and heartbeat.epoch and (is_newer or not last_epoch.all_values):
        epoch, epochs, phase = heartbeat.epoch, heartbeat.epochs, heartbeat.phase
        step, steps = heartbeat.step, heartbeat.steps
        rate = heartbeat.images_per_second or rate
        if phase != "trained" or not last_epoch.all_values:  # after training, use the metrics of all ranks
            shown_metrics |= heartbeat.logs
    fraction = step / steps if steps else 0.0
    epochs_done = float(epoch) if phase == "epoch over" else max(epoch - 1 + min(fraction, 1.0), 0)
    if phase == "trained":  # a callback such as EarlyStopping may have ended the training early
        epochs_done = float(epochs or epoch)
    done_fraction = min(epochs_done / epochs, 1.0) if epochs and epoch else None
    points = heartbeat.points if heartbeat else []
    losses, rates = _find_curves(metrics, points)
    return TrainingProgress(
        fit=fit, epoch=epoch, epochs=epochs, step=step, steps=steps, phase=phase, done=done_fraction,
        seconds_left=_estimate_seconds_left(metrics, heartbeat, epochs_done, epochs, heartbeat_age),
        images_per_second=rate,
        step_seconds=heartbeat.step_seconds if heartbeat else 0.0,
        communication_share=heartbeat.wait_fraction if heartbeat else 0.0,
        sent_bytes=heartbeat.sent_bytes if heartbeat else 0.0, codec=heartbeat.codec if heartbeat else "",
        metrics=shown_metrics, losses=losses, rates=rates,
    )  # fmt: skip


def _estimate_seconds_left(
    metrics: Sequence[Epoch], heartbeat: Heartbeat | None, epochs_done: float, epochs: int, heartbeat_age: float
) -> float | None:
    """Estimate the remaining time in s, including validation; return None without data for an estimate."""
    if not epochs:
        return None
    if epochs_done >= epochs:
        return 0.0
    if heartbeat and heartbeat.epoch:
        first_epoch = _epochs_before_fit(heartbeat)
        if epochs_done - first_epoch >= 1:
            return max(
                0.0, (heartbeat.fit_seconds + heartbeat_age) * (epochs - epochs_done) / (epochs_done - first_epoch)
            )
        # within the first epoch, the first step, which compiles, would distort the estimate
        return heartbeat.step_seconds * heartbeat.steps * (epochs - epochs_done) or None
    epoch_seconds = [entry.seconds for entry in metrics[-RECENT_EPOCHS:] if entry.seconds is not None]
    return sum(epoch_seconds) / len(epoch_seconds) * (epochs - epochs_done) if epoch_seconds else None


def _epochs_before_fit(heartbeat: Heartbeat) -> float:
    """Return the number of epochs, with fractions, that were completed before the ``fit`` call began."""
    if len(heartbeat.first) != 2 or not all(isinstance(part, int) for part in heartbeat.first):
        return 0.0
    return heartbeat.first[0] - 1 + (heartbeat.first[1] / heartbeat.steps if heartbeat.steps else 0.0)


def _find_curves(
    metrics: Sequence[Epoch], points: Sequence[Sequence[float | None]]
) -> tuple[list[float | None], list[float | None]]:
    """Return losses and rates from ``metrics.jsonl`` or from the heartbeat, whichever has more points."""
    valid_points = [point for point in points if len(point) == 2]
    if len(valid_points) > len(metrics):
        return [_finite_number(point[0]) for point in valid_points], [
            _finite_number(rate) for _, rate in valid_points if rate is not None
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
