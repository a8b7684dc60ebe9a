"""Detection of the bottleneck of training: compute, data or network."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import keras

from hpcrun.run.job import print_line
from hpcrun.run.waiting import waited_seconds
from hpcrun.train.outputs.time_shares import StepTimes, describe
from hpcrun.train.ranks.collectives import checked_allgather
from hpcrun.train.ranks.world import world
from hpcrun.train.result import time_shares

if TYPE_CHECKING:
    from hpcrun.train.types import Logs


class Bottleneck(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Callback for all ranks that prints the bottleneck of the training at its end, in one sentence.

    The time of a step consists of waiting for the batch (data), waiting for other ranks (network), and the rest
    (compute). The sentence describes the slowest rank, which waits least for other ranks. The first step is not
    counted, because it includes compilation. With `steps_per_execution`, the time for data is included in compute.
    """

    takes_tensor_logs = True  # this callback does not read logs

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Let steps measure the time for which they wait for data."""
        self._total_seconds = self._data_seconds = self._network_seconds = 0.0
        self._last_clocks: tuple[float, float, float] | None = None  # None before the first step of this process
        self._state = self._model.training_state
        self._state.data_seconds = 0.0

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Exclude the time between epochs."""
        self._last_clocks = self._last_clocks and self._clocks()

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Measure the wait for data on PyTorch, on which Keras fetches the batch between two steps."""
        if self._last_clocks and keras.backend.backend() == "torch":
            self._data_seconds += time.perf_counter() - self._last_clocks[0]

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Add the times of the step."""
        clocks = self._clocks()
        if self._last_clocks:
            total, data, network = (new - old for new, old in zip(clocks, self._last_clocks, strict=True))
            self._total_seconds, self._data_seconds, self._network_seconds = (
                self._total_seconds + total,
                self._data_seconds + data,
                self._network_seconds + network,
            )
        self._last_clocks = clocks

    def on_train_end(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Compare the times of the ranks, and print the bottleneck."""
        self._state.data_seconds = self._state.last_batch = self._state.last_logs = None
        ranks = checked_allgather(
            "the times of steps", StepTimes(self._total_seconds, self._data_seconds, self._network_seconds)
        )
        if world().rank == 0 and all(rank.total > 0 for rank in ranks):
            shares, sentence = describe(ranks)
            time_shares.clear()
            time_shares.update(shares)
            print_line(sentence)

    def _clocks(self) -> tuple[float, float, float]:
        return time.perf_counter(), self._state.data_seconds or 0.0, waited_seconds()
