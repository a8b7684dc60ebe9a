"""What limited the speed of a training: compute, data or the network."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import keras

from hpcrun.train.outputs.time_shares import StepTimes, describe
from hpcrun.train.ranks.collectives import checked_allgather
from hpcrun.train.ranks.waiting import waited_seconds
from hpcrun.train.ranks.world import print_line, world
from hpcrun.train.result import time_shares

if TYPE_CHECKING:
    from hpcrun.train.types import Logs


class Bottleneck(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Callback that says in one sentence, at the end, what limited the speed; for all ranks.

    The time of a step is that for which it waits for its batch (data), that for which it waits for other ranks
    (network), and the rest (compute). All ranks wait for the slowest one, so that its shares count: those of the rank
    that waits least. The first step, which compiles, does not count. With `steps_per_execution` the time for data is
    part of that for compute.
    """

    reads_logs_late = True  # never

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Let the steps measure how long they wait for data."""
        self._total = self._data = self._network = 0.0
        self._last: tuple[float, float, float] | None = None  # None before the first step of this start
        self._state = self._model.training_state
        self._state.data_seconds = 0.0

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """The time between epochs is no step's."""
        self._last = self._last and self._clocks()

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """On PyTorch, Keras has fetched the batch between two steps."""
        if self._last and keras.backend.backend() == "torch":
            self._data += time.perf_counter() - self._last[0]

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Add up the times of the step."""
        now = self._clocks()
        if self._last:
            total, data, network = (new - old for new, old in zip(now, self._last, strict=True))
            self._total, self._data, self._network = self._total + total, self._data + data, self._network + network
        self._last = now

    def on_train_end(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Compare the ranks, and print the sentence."""
        self._state.data_seconds = self._state.last_batch = self._state.last_logs = None
        ranks = checked_allgather("the times of steps", StepTimes(self._total, self._data, self._network))
        if world().rank == 0 and all(rank.total > 0 for rank in ranks):
            shares, sentence = describe(ranks)
            time_shares.clear()
            time_shares.update(shares)
            print_line(sentence)

    def _clocks(self) -> tuple[float, float, float]:
        return time.perf_counter(), self._state.data_seconds or 0.0, waited_seconds()
