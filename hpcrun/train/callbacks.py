"""What keeps the ranks in step around Keras's training loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras

from hpcrun.errors import HpcrunError
from hpcrun.train.data.batch_share import record_share
from hpcrun.train.model_config import check_same_learning_rate
from hpcrun.train.ranks.collectives import allreduce
from hpcrun.train.ranks.world import world
from hpcrun.train.state import average_moving_statistics, broadcast_built_variables, check_same_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.train.types import Keras, Logs

# They write files or the screen, where one rank is enough and several would spoil each other's work.
_FILE_WRITERS = tuple(
    getattr(keras.callbacks, name)
    for name in (
        "BackupAndRestore",
        "CSVLogger",
        "ModelCheckpoint",
        "OrbaxCheckpoint",
        "ProgbarLogger",
        "RemoteMonitor",
        "TensorBoard",
    )
    if hasattr(keras.callbacks, name)  # an older Keras may lack one
)


class Callback:
    """Says on which ranks a Keras callback runs, in `fit(callbacks=[...])` and `evaluate` of an `hpcrun.train.Model`.

    What changes weights or decides when to stop belongs on all ranks: they see the same logs, and decide alike. On rank
    0 alone belongs what writes to one place; on all ranks, what writes to a place of each rank's own.

    Args:
        callback: The Keras callback.
        all_ranks: True: on every rank, even one that writes files, say, a `ModelCheckpoint` with a path for each rank.
            False: on rank 0 only. None: as without this, Keras's callbacks that write (and what is derived from them)
            on rank 0 only, all others on all ranks.

    Raises:
        HpcrunError: `callback` is no Keras callback.
    """

    def __init__(self, callback: keras.callbacks.Callback, all_ranks: bool | None = None) -> None:
        _require_callback(callback)
        self.callback, self.all_ranks = callback, all_ranks

    def runs_on_this_rank(self) -> bool:
        """Return whether it runs on this rank."""
        everywhere = not isinstance(self.callback, _FILE_WRITERS) if self.all_ranks is None else self.all_ranks
        return everywhere or world().rank == 0


def wrap_user_callbacks(callbacks: Keras) -> list[Callback]:
    """Return what a user gave to `fit`, `evaluate` or `predict`, as `Callback` each.

    Args:
        callbacks: A callback, a list of them, or None.

    Raises:
        HpcrunError: Something among them is no Keras callback, or is a `keras.callbacks.CallbackList`.
    """
    given = keras.tree.flatten(callbacks) if callbacks else []
    return [c if isinstance(c, Callback) else Callback(c) for c in given if c is not None]


def callbacks_on_this_rank(user_callbacks: Sequence[Callback]) -> list[keras.callbacks.Callback]:
    """Return a user's callbacks as this rank has to run them.

    All ranks run them on the same logs, so that they decide alike; those that write run on rank 0 only, unless
    `Callback` says otherwise. What Keras's own ones print (`verbose=1`), they print on rank 0.

    Args:
        user_callbacks: All of them.
    """
    callbacks = [callback.callback for callback in user_callbacks if callback.runs_on_this_rank()]
    for callback in callbacks if world().rank else ():
        if type(callback).__module__.startswith("keras.") and hasattr(callback, "verbose"):
            callback.verbose = 0
    return [AverageStatistics(), *callbacks, SynchronizeRanks()] if world().size > 1 else callbacks


def _require_callback(callback: Keras) -> None:
    if isinstance(callback, keras.callbacks.CallbackList):
        raise HpcrunError(
            "a keras.callbacks.CallbackList hides which of its callbacks write files",
            hint="give the callbacks themselves: callbacks=[...]",
        )
    if isinstance(callback, keras.callbacks.Callback):
        return
    kind = callback.__name__ if isinstance(callback, type) else type(callback).__name__
    raise HpcrunError(
        f"{kind} is no Keras callback",
        hint=f"give an object: {kind}(...)"
        if isinstance(callback, type)
        else "derive its class from keras.callbacks.Callback",
    )


class AverageStatistics(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """First of all callbacks: others see (and save) moving statistics that are the mean over the ranks."""

    async_safe = True  # or Keras would wait for every step's logs

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Mark that training steps follow."""
        self.model.training_state.in_epoch = True
        record_share(None)

    def on_test_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Average before validation."""
        average_moving_statistics(self.model)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Average before checkpoints, where there was no validation."""
        average_moving_statistics(self.model)


class SynchronizeRanks(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Last of all callbacks: all ranks start from rank 0's state, and stop together."""

    async_safe = True  # its batch hook matters only beside callbacks that make Keras call all of them in turn

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Take over rank 0's weights, which a callback of its own may just have restored, and its epoch."""
        broadcast_built_variables(self.model)  # a step of its own may build the others
        self.model.training_state.weights_broadcast, self.model.training_state.variables_checked = (
            True,
            len(self.model.variables),
        )
        self.model._initial_epoch = world().comm.bcast(self.model._initial_epoch)  # noqa: SLF001

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Put off one rank's stop (say, on its NaN) by a step: it travels with the gradients, and all stop there."""
        model = self._model  # `self.model` fetches the state of a model on JAX, in the middle of an epoch
        reducers = model.training_state.reducers
        if reducers and model.stop_training and not any(reducer.stop_agreed for reducer in reducers):
            model.stop_training = False
            for reducer in reducers:
                reducer.stop_requested = True

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """See that the ranks are still alike; stop all of them where one wants to."""
        check_same_learning_rate(self.model)
        check_same_weights(self.model)
        reducers = self.model.training_state.reducers
        wanted = self.model.stop_training or any(reducer.stop_requested for reducer in reducers)
        self.model.stop_training = bool(allreduce(int(bool(wanted))))
        for reducer in reducers:
            reducer.stop_requested = reducer.stop_agreed = False
