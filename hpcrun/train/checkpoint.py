"""Checkpoints: all that a `fit` needs to go on as if nothing had stopped it.

A job is stopped by SIGTERM (cancelled, preempted, near its time limit) or by SIGUSR2 (Slurm's ``--signal``). The rank
that is told passes it on with the next gradients, so that all ranks stop after the same step. Then weights, optimizer,
seeds, moving statistics, metrics, the callbacks' memory and the place in the data are written to one file, by rank 0;
the same script, started again with the same run directory, reads it and goes on with the next batch.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from hpcrun.train import checkpoint_file
from hpcrun.train.ranks import failure
from hpcrun.train.ranks.collectives import checked_allgather, checked_barrier
from hpcrun.train.ranks.world import print_line, world
from hpcrun.train.result import training_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    import numpy as np

    from hpcrun.train.checkpoint_file import TrainingPosition
    from hpcrun.train.types import Keras, Logs

    Array = np.ndarray[Any, Any]

SECONDS_BETWEEN = 600.0  # seconds between checkpoints at the ends of epochs
_SIGNALS = (signal.SIGTERM, signal.SIGUSR2)
_fits = count()


class Checkpoint(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Writes and reads the checkpoint of one `fit`; the last of its callbacks.

    Args:
        file: Where it is.
        place: Where the `fit` goes on.
        arrays: What the file holds, on rank 0.
        user_callbacks: The user's callbacks.
        number: Which `fit` of the script it is, from 0.
    """

    async_safe = True  # it has no hook that is called every batch

    def __init__(
        self,
        file: Path,
        place: TrainingPosition,
        arrays: dict[str, Array],
        user_callbacks: Sequence[Keras],
        number: int,
    ) -> None:
        super().__init__()
        self.file, self.place, self.user_callbacks, self.number = file, place, user_callbacks, number
        self._arrays, self._written, self._signal = arrays, time.monotonic(), 0

    @contextmanager
    def handle_signals(self) -> Iterator[None]:
        """Take note of signals inside the block, instead of dying of them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._handle_signal) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._signal:  # too late for this `fit`, and not for the rest of the script
            signal.raise_signal(self._signal)

    def _handle_signal(self, number: int, _: FrameType | None) -> None:
        self._signal = number
        for reducer in self._model.training_state.reducers:
            reducer.exit_requested = True

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Go back to where the file says."""
        self._begun = time.perf_counter() - self.place.seconds
        self._initial_states = [checkpoint_file.callback_state(callback) for callback in self.user_callbacks]
        self._resumes = self.is_resumed()
        if self._resumes:
            self._restore()

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Begin an epoch at its first batch, or the first one where it was interrupted."""
        training_state = self.model.training_state
        training_state.batch, training_state.skip = 0, self.place.batch if self._resumes else 0
        if self._resumes:
            self._resumes = False
            self.model.history.epoch = list(self.place.history["epoch"])
            self.model.history.history = {name: list(values) for name, values in self.place.history["logs"].items()}
            # At the end of an epoch they held that epoch's.
            for variable, value in zip(
                self.model.metrics_variables if training_state.skip else [], self._metrics, strict=False
            ):
                variable.assign(value)
        self.place.epoch = epoch

    def stop_requested(self) -> bool:
        """Return whether a rank was told to leave; after a step, all ranks find the same."""
        reducers = self._model.training_state.reducers
        return any(reducer.exit_agreed for reducer in reducers) if reducers else bool(self._signal)

    def write_and_exit(self) -> None:
        """Write the file after a step, and leave; every rank must call it."""
        self.place.batch = self._model.training_state.batch
        self._write()
        self._exit_job()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Write the file where a rank was told to stop, or where the last one is old."""
        due = world().rank == 0 and time.monotonic() - self._written > SECONDS_BETWEEN
        stop, due = (
            any(each) for each in zip(*checked_allgather("the end of an epoch", (self._signal, due)), strict=True)
        )
        self.place.epoch, self.place.batch = epoch + 1, 0
        self.place.stopped = bool(self.model.stop_training)
        if stop or due:
            self._write()
        if stop:
            self._exit_job()

    def on_train_end(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Write what this `fit` ends with: a job that is stopped later need not repeat it."""
        self._write()
        if any(checked_allgather("the end of training", self._signal)):
            self._exit_job()

    def is_resumed(self) -> bool:
        """Return whether there was a file."""
        return bool(self.place.variables)

    def finished_history(self, epochs: int) -> keras.callbacks.History | None:
        """Return the history of a `fit` that the file holds to its end, with the model as it ended; else None.

        Args:
            epochs: How many it should have.
        """
        if not self.is_resumed() or not (self.place.stopped or self.place.epoch >= epochs):
            return None
        self._restore()
        history = keras.callbacks.History()
        history.set_model(self.model)
        history.epoch, history.history = self.place.history["epoch"], self.place.history["logs"]
        self.model.history = history
        training_seconds.append(self.place.seconds)
        return history

    def _exit_job(self) -> None:
        gathered = checked_allgather("the signal that ends the job", (self._signal, self.file.exists()))
        number = max(number for number, _ in gathered)
        place = f"epoch {self.place.epoch + 1}, after {self.place.batch} batches"
        text = f"stopped by {signal.Signals(number).name} in {place}"
        if gathered[0][1]:
            text += f"; to go on, start it again: it reads {self.file}"
        failure.report_and_abort(text, text, 128 + number)

    def _write(self) -> None:
        model = self._model
        checked_barrier("a checkpoint")
        local = checkpoint_file.rank_state(model)
        ranks = world().comm.gather(local) if world().size > 1 else [local]
        if world().rank == 0:
            self.place.seconds = time.perf_counter() - self._begun
            self.place.history = {"epoch": model.history.epoch, "logs": model.history.history}
            both = zip(self.user_callbacks, self._initial_states, strict=True)
            self.place.memory = [checkpoint_file.changed_state(callback, initial) for callback, initial in both]
            try:
                checkpoint_file.write_checkpoint(self.file, self.place, model, ranks)
            except OSError as error:  # a disk that is full is no reason to end a training
                print(f"WARNING: no checkpoint in {self.file}: {error.strerror}", file=sys.stderr)
        self._written = time.monotonic()

    def _restore(self) -> None:
        self._metrics = checkpoint_file.restore_model(self.model, self.file, self.place, self._arrays)
        for callback, memory in zip(self.user_callbacks, self.place.memory, strict=False):
            checkpoint_file.restore_callback(callback, self.model, memory, self._arrays)
        if world().rank == 0:
            print_line(
                f"from {self.file}: {self.place.epoch} epochs and {self.place.batch} batches of the next are done"
            )


class ResumedCallbackList(keras.callbacks.CallbackList):  # type: ignore[misc]  # keras is untyped
    """Callbacks that do not see again the batches of the first epoch that were done before an interruption."""

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Pass on what is not repeated."""
        if batch >= self._model.training_state.skip:
            super().on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Pass on what is not repeated."""
        if batch >= self._model.training_state.skip:
            super().on_train_batch_end(batch, logs)


def open_checkpoint(
    folder: str | os.PathLike[str] | None, seed: int, user_callbacks: Sequence[Keras]
) -> Checkpoint | None:
    """Return the checkpoint of the `fit` that begins, as it was left, or None where there is no place for one.

    Args:
        folder: Where checkpoints go; without one ``$HPCRUN_RUN_DIR/checkpoints``, without that none.
        seed: For the samples' order, where there was no checkpoint.
        user_callbacks: The user's callbacks, in their order.
    """
    if folder is None and "HPCRUN_RUN_DIR" not in os.environ:
        return None
    folder = Path(folder) if folder is not None else Path(os.environ["HPCRUN_RUN_DIR"], "checkpoints")
    number = next(_fits)
    file = folder.absolute() / f"fit-{number}.npz"
    return Checkpoint(file, *checkpoint_file.read_checkpoint(file, seed), user_callbacks, number)
