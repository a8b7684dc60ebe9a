"""The ranks on which callbacks run, and two callbacks that keep the ranks synchronized."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras

from hpcrun.errors import HpcrunError
from hpcrun.train.data.batch_share import record_share
from hpcrun.train.model_config import check_same_learning_rate
from hpcrun.train.ranks.collectives import allreduce, checked_barrier
from hpcrun.train.ranks.world import world
from hpcrun.train.state import average_moving_statistics, broadcast_built_variables, check_same_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.train.types import Keras, Logs

# Keras's callbacks that write to files or to the screen; they run on rank 0 only.
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
    if hasattr(keras.callbacks, name)  # older versions of Keras lack some callbacks
)


class Callback:
    """A Keras callback for `fit` and `evaluate` of an `hpcrun.train.Model`, with the ranks on which it runs.

    A callback that changes weights or stops the training must run on all ranks: all ranks get the same logs, so they
    make the same decisions. A callback that writes one file for the job must run on rank 0; a callback that writes one
    file per rank must run on all ranks.

    Args:
        callback: The Keras callback.
        all_ranks: True: run on all ranks, for example a `ModelCheckpoint` with one path per rank. False: run on rank 0
            only. None (default): Keras's callbacks that write files, and their subclasses, run on rank 0 only, other
            callbacks on all ranks.

    Raises:
        HpcrunError: `callback` is not a Keras callback.
    """

    def __init__(self, callback: keras.callbacks.Callback, all_ranks: bool | None = None) -> None:
        _require_callback(callback)
        self.callback, self.all_ranks = callback, all_ranks

    def runs_on_this_rank(self) -> bool:
        """Return whether this rank runs the callback."""
        runs_on_all_ranks = not isinstance(self.callback, _FILE_WRITERS) if self.all_ranks is None else self.all_ranks
        return runs_on_all_ranks or world().rank == 0


def wrap_user_callbacks(callbacks: Keras) -> list[Callback]:
    """Wrap each callback of the user in a `Callback`.

    Args:
        callbacks: The argument of `fit`, `evaluate` or `predict`: a callback, a list of callbacks, or None.

    Raises:
        HpcrunError: An item is not a Keras callback, or is a `keras.callbacks.CallbackList`.
    """
    callbacks_given = keras.tree.flatten(callbacks) if callbacks else []
    return [c if isinstance(c, Callback) else Callback(c) for c in callbacks_given if c is not None]


def callbacks_on_this_rank(user_callbacks: Sequence[Callback]) -> list[keras.callbacks.Callback]:
    """Return hpcrun's first callback, the user's callbacks that run on this rank, and hpcrun's last callback.

    Keras's callbacks print (`verbose=1`) on rank 0 only.

    Args:
        user_callbacks: The callbacks of all ranks.
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
        f"{kind} is not a Keras callback",
        hint=f"give an object: {kind}(...)"
        if isinstance(callback, type)
        else "derive its class from keras.callbacks.Callback",
    )


class AverageStatistics(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """First callback, which averages moving statistics over the ranks, so that other callbacks use the mean."""

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Mark the beginning of the training steps."""
        self.model.training_state.in_epoch = True
        record_share(None)

    def on_test_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Average moving statistics before validation."""
        average_moving_statistics(self.model)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Average moving statistics before checkpoints, also without validation."""
        average_moving_statistics(self.model)


class SynchronizeRanks(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Last callback, which broadcasts the state of rank 0 at the start, and stops all ranks at the same step."""

    takes_tensor_logs = True  # this callback does not read logs

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Broadcast the weights and the epoch of rank 0, which a callback may have restored on rank 0 only."""
        broadcast_built_variables(self.model)  # a custom step may create more variables later
        self.model.training_state.weights_broadcast, self.model.training_state.variables_checked = (
            True,
            len(self.model.variables),
        )
        self.model._initial_epoch = world().comm.bcast(self.model._initial_epoch)  # noqa: SLF001
        # Complete the broadcast on all ranks: a rank cannot forward messages while it traces its first step.
        checked_barrier("the beginning of the training")

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Delay a stop of this rank (such as on NaN) by one step, because the next allreduce stops all ranks."""
        model = self._model  # on JAX, `self.model` would copy the model's state in the middle of an epoch
        reducers = model.training_state.reducers
        if reducers and model.stop_training and not any(reducer.stop_agreed for reducer in reducers):
            model.stop_training = False
            for reducer in reducers:
                reducer.stop_requested = True

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Check that all ranks have equal weights; stop all ranks if a rank wants to stop."""
        check_same_learning_rate(self.model)
        check_same_weights(self.model)
        reducers = self.model.training_state.reducers
        stop = self.model.stop_training or any(reducer.stop_requested for reducer in reducers)
        self.model.stop_training = bool(allreduce(int(bool(stop))))
        for reducer in reducers:
            reducer.stop_requested = reducer.stop_agreed = False
