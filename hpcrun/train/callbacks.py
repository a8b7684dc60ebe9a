"""What keeps the ranks in step around Keras's training loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras

from hpcrun.train.optimizer import reducer_of
from hpcrun.train.state import average_statistics, broadcast
from hpcrun.train.world import allreduce, world

if TYPE_CHECKING:
    from hpcrun.train.kinds import Keras, Logs

# They write files or the screen, where one rank is enough and several would spoil each other's work.
_CHIEFS = (
    keras.callbacks.BackupAndRestore,
    keras.callbacks.CSVLogger,
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.ProgbarLogger,
    keras.callbacks.RemoteMonitor,
    keras.callbacks.TensorBoard,
)


def in_step(callbacks: Keras) -> list[keras.callbacks.Callback]:
    """Return a user's callbacks as this rank has to run them.

    All ranks run them on the same logs, so that they decide alike; those that write run on rank 0 only.

    Args:
        callbacks: What the user gave to `fit` or `evaluate`.
    """
    users = keras.tree.flatten(callbacks) if callbacks else []
    if world().size == 1:
        return users
    return [
        Before(),
        *(c for c in users if world().rank == 0 or not isinstance(c, _CHIEFS)),
        After(),
    ]


class Before(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """First of all callbacks: others see (and save) moving statistics that are the mean over the ranks."""

    async_safe = True  # or Keras would wait for every step's logs

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Mark that training steps follow."""
        self.model.course.in_epoch = True

    def on_test_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Average before validation."""
        average_statistics(self.model)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Average before checkpoints, where there was no validation."""
        average_statistics(self.model)


class After(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Last of all callbacks: all ranks start from rank 0's state, and stop together."""

    async_safe = True  # its batch hook matters only beside callbacks that make Keras call all of them in turn

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Take over rank 0's weights, which a callback of its own may just have restored, and its epoch."""
        broadcast(self.model)
        self.model._initial_epoch = world().comm.bcast(self.model._initial_epoch)  # noqa: SLF001
        self._reducer = reducer_of(self.model.optimizer)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Put off one rank's stop (say, on its NaN) by a step: it travels with the gradients, and all stop there."""
        model = self._model  # `self.model` fetches the state of a model on JAX, in the middle of an epoch
        if self._reducer and model.stop_training and not self._reducer.stops:
            self._reducer.stop, model.stop_training = True, False

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Stop all ranks where one wants to."""
        wanted = self.model.stop_training or (self._reducer and self._reducer.stop)
        self.model.stop_training = bool(allreduce(int(bool(wanted))))
        if self._reducer:
            self._reducer.stop = self._reducer.stops = False
