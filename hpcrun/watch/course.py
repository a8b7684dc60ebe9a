"""How far a training is, how fast, and when it will be through."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hpcrun.jobs.run_files import Epoch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.heartbeats import Heartbeat

RECENT = 5
"""So many last epochs tell how long the next ones take, where ranks give no sign of life."""


@dataclass(frozen=True)
class Course:
    """A training at one moment; what is not known is 0, None or empty.

    Attributes:
        fit: Which ``fit`` of its script it is in, from 0.
        epoch: The epoch, from 1; 0 before the first.
        epochs: How many there are to be.
        step: Steps of the epoch that are done; 0 where it is over.
        steps: How many it has.
        phase: ``training``, ``validation``, ``trained``.
        done: The part of the training that is done, 0 to 1.
        seconds_left: At this pace.
        images_per_second: The rate.
        step_seconds: What a step takes.
        figures: The newest figures: of the epoch that goes on (rank 0's own), and of the last one (all ranks').
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
    figures: dict[str, object] = field(default_factory=dict)
    losses: list[float | None] = field(default_factory=list)
    rates: list[float | None] = field(default_factory=list)

    @property
    def place(self) -> str:
        """Where it is, in words: ``fit 2, epoch 3/90, step 40/390``."""
        words = [f"fit {self.fit + 1}"] if self.fit else []
        words += [f"epoch {self.epoch}" + (f"/{self.epochs}" if self.epochs else "")]
        if self.phase == "validation":
            words.append("validation")
        elif self.step and self.phase != "trained":
            words.append(f"step {self.step}" + (f"/{self.steps}" if self.steps else ""))
        return ", ".join(words)


def course(metrics: Sequence[Epoch], beat: Heartbeat | None, *, newer: bool, age: float) -> Course:
    """Return how far a training is.

    Args:
        metrics: What rank 0 wrote at the ends of epochs, of all its ``fit``.
        beat: What it said last, if it gives signs of life.
        newer: Whether it said that after the last epoch's end.
        age: How long ago, in s.
    """
    fit = beat.fit if beat and beat.epoch and newer else count(metrics[-1].fit) if metrics else 0
    metrics = [entry for entry in metrics if count(entry.fit) == fit]
    beat = beat if beat and beat.fit == fit else None
    last = metrics[-1] if metrics else Epoch()
    epoch, epochs, figures = count(last.epoch), count(last.epochs), last.figures
    rate, step, steps, phase = positive(last.images_per_second), 0, 0, "epoch over" if last.said else ""
    if beat and beat.epoch and (newer or not last.said):
        epoch, epochs, step, steps, phase = beat.epoch, beat.epochs, beat.step, beat.steps, beat.phase
        rate = beat.images_per_second or rate
        if phase != "trained" or not last.said:  # the last epoch's are all ranks'
            figures |= beat.logs
    within = step / steps if steps else 0.0
    passed = float(epoch) if phase in {"epoch over", "trained"} else max(epoch - 1 + min(within, 1.0), 0)
    done = min(passed / epochs, 1.0) if epochs and epoch else None
    points = beat.points if beat else []
    losses, rates = _curves(metrics, points)
    return Course(
        fit=fit, epoch=epoch, epochs=epochs, step=step, steps=steps, phase=phase, done=done,
        seconds_left=_left(metrics, beat, passed, epochs, age), images_per_second=rate,
        step_seconds=beat.step_seconds if beat else 0.0, figures=figures, losses=losses, rates=rates,
    )  # fmt: skip


def _left(metrics: Sequence[Epoch], beat: Heartbeat | None, passed: float, epochs: int, age: float) -> float | None:
    """Return the seconds that a training needs yet, with its validation; None while nobody can know."""
    if not epochs:
        return None
    if passed >= epochs:
        return 0.0
    if beat and beat.epoch:
        first = _first(beat)
        if passed - first >= 1:
            return max(0.0, (beat.fit_seconds + age) * (epochs - passed) / (passed - first))
        # before the first epoch's end the first step, which compiles, would count too much
        return beat.step_seconds * beat.steps * (epochs - passed) or None
    took = [entry.seconds for entry in metrics[-RECENT:] if entry.seconds is not None]
    return sum(took) / len(took) * (epochs - passed) if took else None


def _first(beat: Heartbeat) -> float:
    """Return how many epochs were done when the ``fit`` began."""
    if len(beat.first) != 2 or not all(isinstance(part, int) for part in beat.first):
        return 0.0
    return beat.first[0] - 1 + (beat.first[1] / beat.steps if beat.steps else 0.0)


def _curves(metrics: Sequence[Epoch], points: Sequence[Any]) -> tuple[list[float | None], list[float | None]]:
    """Return losses and rates: of the ends of epochs, or what has more points."""
    told = [point for point in points if isinstance(point, list) and len(point) == 2]
    if len(told) > len(metrics):
        return [_number(point[0]) for point in told], [_number(rate) for _, rate in told if rate is not None]
    losses = [entry.said["loss"] for entry in metrics if "loss" in entry.said]
    rates = [entry.images_per_second for entry in metrics if "images_per_second" in entry.said]
    return [_number(loss) for loss in losses], [_number(rate) for rate in rates]


def count(value: object) -> int:
    """Return a whole number above 0, else 0.

    Args:
        value: Anything.
    """
    return value if isinstance(value, int) and value > 0 else 0


def positive(value: object) -> float:
    """Return a number that makes sense as a rate, else 0.

    Args:
        value: Anything.
    """
    return float(value) if isinstance(value, int | float) and value > 0 else 0.0


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and abs(value) < float("inf") else None
