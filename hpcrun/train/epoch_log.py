"""Training log: one line per epoch on stdout, and one JSON object per epoch in ``metrics.jsonl``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import keras

from hpcrun.run.job import run_dir
from hpcrun.run.metrics import append_epoch, print_epoch, remove_repeated_epochs
from hpcrun.train.callback_list import to_numbers
from hpcrun.train.ranks.world import world
from hpcrun.train.result import epoch_rates, training_seconds
from hpcrun.train.training_progress import samples_trained

if TYPE_CHECKING:
    from hpcrun.train.types import Logs

SECONDS_BETWEEN_LINES = 2.0  # seconds between progress lines within an epoch


class EpochLogger(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Callback that prints each epoch on rank 0, and appends it to ``$HPCRUN_RUN_DIR/metrics.jsonl``.

    Args:
        show: Whether this rank prints.
        fit: Number of the `fit` in the script, from 0; recorded as ``fit`` unless it is 0.
        seconds_before: Training seconds of this `fit` before an interruption.
    """

    takes_tensor_logs = True

    def __init__(self, *, show: bool, fit: int = 0, seconds_before: float = 0.0) -> None:
        super().__init__()
        self.show, self.fit, self.seconds_before = show, fit, seconds_before
        self._is_first_epoch = True

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Record the start time of the `fit`."""
        self._fit_start = time.perf_counter()

    def on_train_end(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Record the duration of the `fit`."""
        training_seconds.append(self.seconds_before + time.perf_counter() - self._fit_start)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Record the epoch's start time; before the first epoch, remove lines of epochs that will be repeated."""
        if self._is_first_epoch and (folder := run_dir()) and world().rank == 0:
            remove_repeated_epochs(folder, (self.fit, epoch))
        self._is_first_epoch = False
        self._epoch = epoch + 1
        self._rate: float | None = None
        self._epoch_start = self._last_line = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Print the progress of a long epoch; its metrics cover only the samples of rank 0."""
        if self.show and time.perf_counter() - self._last_line > SECONDS_BETWEEN_LINES:
            self._last_line = time.perf_counter()
            steps = self.params.get("steps") or "?"
            print_epoch(
                self._epoch, self.params.get("epochs"), to_numbers(logs), self._rate, f"step {batch + 1}/{steps}"
            )

    def on_test_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Compute images per second before validation, which takes time and resets the count of samples."""
        self._measure()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Print the epoch, and append it to the file."""
        logs = logs or {}
        self._measure()
        if self._rate:
            epoch_rates.append(self._rate)
        if self.show:
            sorted_logs = dict(sorted(logs.items(), key=_sort_key))
            print_epoch(self._epoch, self.params.get("epochs"), sorted_logs, self._rate)
        timing = {"images_per_second": self._rate or 0.0, "seconds": round(time.perf_counter() - self._epoch_start, 3)}
        fit_entry = {"fit": self.fit} if self.fit else {}
        entry = {**fit_entry, "epoch": self._epoch, "epochs": self.params.get("epochs"), **logs, **timing}
        if (folder := run_dir()) and world().rank == 0:
            append_epoch(folder, entry)

    def _measure(self) -> None:
        if self._rate is None:
            training_state = self.model.training_state
            fraction = (
                1 - training_state.skip / training_state.batch if training_state.skip else 1.0
            )  # fraction of the epoch's batches that this process has trained; a restarted job trains only a part
            self._rate = samples_trained(self.model) * fraction / (time.perf_counter() - self._epoch_start)


def _sort_key(item: tuple[str, float]) -> tuple[bool, bool]:
    """Return a sort key: training metrics before validation metrics, losses first."""
    return item[0].startswith("val_"), not item[0].endswith("loss")
