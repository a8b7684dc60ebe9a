"""Training log: a line per epoch on stdout, and an object per epoch in ``metrics.jsonl``."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import keras

from hpcrun import permissions
from hpcrun.train.callback_list import to_numbers
from hpcrun.train.ranks.world import print_line, world
from hpcrun.train.result import epoch_rates, format_metrics, run_dir, to_json, training_seconds
from hpcrun.train.training_progress import samples_trained

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.train.types import Logs

SECONDS_BETWEEN_LINES = 2.0  # seconds between progress lines within an epoch


class EpochLogger(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Callback that prints and records each epoch: rank 0's stdout and ``$HPCRUN_RUN_DIR/metrics.jsonl``.

    Args:
        show: Whether this rank prints.
        fit: The number of the `fit` in the script, from 0; the file has a key ``fit`` from the second on.
        seconds_before: Training seconds of this `fit` before an interruption.
    """

    reads_logs_late = True

    def __init__(self, *, show: bool, fit: int = 0, seconds_before: float = 0.0) -> None:
        super().__init__()
        self.show, self.fit, self.seconds_before = show, fit, seconds_before
        self._first = True

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Start the clock."""
        self._fit_start = time.perf_counter()

    def on_train_end(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Stop the clock."""
        training_seconds.append(self.seconds_before + time.perf_counter() - self._fit_start)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Start the epoch's clock; before the first epoch, remove lines of epochs that are repeated."""
        if self._first and (folder := run_dir()) and world().rank == 0:
            _remove_repeated_epochs(folder / "metrics.jsonl", (self.fit, epoch))
        self._first = False
        self._epoch = epoch + 1
        self._rate: float | None = None
        self._epoch_start = self._last_line = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Print the progress of a long epoch; the metrics are rank 0's own until its end."""
        if self.show and time.perf_counter() - self._last_line > SECONDS_BETWEEN_LINES:
            self._last_line = time.perf_counter()
            steps = self.params.get("steps") or "?"
            self._print(f"step {batch + 1}/{steps}", to_numbers(logs))

    def on_test_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Measure before validation, which takes time and resets the count."""
        self._measure()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Print and record the epoch."""
        logs = logs or {}
        self._measure()
        if self._rate:
            epoch_rates.append(self._rate)
        if self.show:
            self._print("", dict(sorted(logs.items(), key=_sort_key)))
        timing = {"images_per_second": self._rate or 0.0, "seconds": round(time.perf_counter() - self._epoch_start, 3)}
        which = {"fit": self.fit} if self.fit else {}
        entry = {**which, "epoch": self._epoch, "epochs": self.params.get("epochs"), **logs, **timing}
        if (folder := run_dir()) and world().rank == 0:
            try:
                with open(folder / "metrics.jsonl", "a", encoding="utf-8", opener=permissions.opener) as file:
                    file.write(json.dumps(to_json(entry)) + "\n")
            except OSError as error:  # a full disk must not end the training
                print_line(f"WARNING: {folder / 'metrics.jsonl'} lacks epoch {self._epoch}: {error.strerror}")

    def _measure(self) -> None:
        if self._rate is None:
            training_state = self.model.training_state
            fraction = (
                1 - training_state.skip / training_state.batch if training_state.skip else 1.0
            )  # without the batches before an interruption
            self._rate = samples_trained(self.model) * fraction / (time.perf_counter() - self._epoch_start)

    def _print(self, step: str, logs: dict[str, Any]) -> None:
        rate = f"{self._rate:{',.0f' if self._rate >= 10 else '.2g'}} images/s" if self._rate else ""
        line = [f"epoch {self._epoch}/{self.params.get('epochs')}", step, *format_metrics(logs), rate]
        print_line("  ".join(word for word in line if word))


def _sort_key(item: tuple[str, float]) -> tuple[bool, bool]:
    """Sort training before validation metrics, and the loss first."""
    return item[0].startswith("val_"), not item[0].endswith("loss")


def _remove_repeated_epochs(file: Path, done: tuple[int, int]) -> None:
    """Remove the lines of epochs after the completed ones of a `fit` from ``metrics.jsonl``."""
    if not file.exists():
        return
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    remaining = [
        line for line in lines if line.endswith("\n") and _fit_and_epoch(line) <= done
    ]  # the last line may be incomplete
    if remaining != lines:
        new = file.with_name(f".{file.name}")
        with open(new, "w", encoding="utf-8", opener=permissions.opener) as opened:
            opened.write("".join(remaining))
        new.replace(file)


def _fit_and_epoch(line: str) -> tuple[int, int]:
    """Return the `fit` and the epoch of a line; lines of the user's own are kept, as (0, 0)."""
    try:
        entry = json.loads(line)
        return int(entry.get("fit", 0)), int(entry["epoch"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return 0, 0
