"""What training tells on its way: lines for its log, and one JSON object an epoch."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import keras

from hpcrun.train.ranks.world import say, world
from hpcrun.train.result import jsonable, run_dir, training_seconds, words

if TYPE_CHECKING:
    from hpcrun.train.kinds import Logs

PAUSE = 2.0  # seconds between progress lines within an epoch


class Report(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Prints one line an epoch and appends it to ``$HPCRUN_RUN_DIR/metrics.jsonl`` (rank 0); measures images a second.

    Args:
        show: Whether this rank prints.
    """

    async_safe = True  # or Keras would wait for every step's logs

    def __init__(self, *, show: bool) -> None:
        super().__init__()
        self.show = show

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Start the clock."""
        self._started = time.perf_counter()

    def on_train_end(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Stop the clock."""
        training_seconds.append(time.perf_counter() - self._started)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Start the epoch's clock."""
        self._epoch = epoch + 1
        self._rate: float | None = None
        self._begun = self._spoke = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Print how far a long epoch is; the figures are rank 0's own until the epoch's end."""
        if self.show and time.perf_counter() - self._spoke > PAUSE:
            self._spoke = time.perf_counter()
            steps = self.params.get("steps") or "?"
            self._print(f"step {batch + 1}/{steps}", logs or {})

    def on_test_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Measure before validation, which takes its time and resets the count."""
        self._measure()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Report the epoch."""
        logs = {} if logs is None else logs
        self._measure()
        if self.show:
            self._print("", dict(sorted(logs.items(), key=_order)))
        logs["images_per_second"] = self._rate or 0.0
        seconds = round(time.perf_counter() - self._begun, 3)
        entry = {"epoch": self._epoch, "epochs": self.params.get("epochs"), **logs, "seconds": seconds}
        if (folder := run_dir()) and world().rank == 0:
            with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(jsonable(entry)) + "\n")

    def _measure(self) -> None:
        if self._rate is None:
            # The loss is a mean over samples, so its count is the number of samples; all ranks' by now.
            loss = next((m for m in self.model.metrics if m.name == "loss" and hasattr(m, "count")), None)
            samples = float(loss.count) if loss else 0.0
            course = self.model.course
            here = 1 - course.skip / course.batch if course.skip else 1.0  # the rest was done before an interruption
            self._rate = samples * here / (time.perf_counter() - self._begun)

    def _print(self, step: str, logs: dict[str, Any]) -> None:
        rate = f"{self._rate:{',.0f' if self._rate >= 10 else '.2g'}} images/s" if self._rate else ""
        line = [f"epoch {self._epoch}/{self.params.get('epochs')}", step, *words(logs), rate]
        say("  ".join(word for word in line if word))


def _order(item: tuple[str, float]) -> tuple[bool, bool]:
    """Training before validation, and the loss first."""
    return item[0].startswith("val_"), not item[0].endswith("loss")
