"""Checkpoints of the state of a `fit`, from which a restarted job continues.

SIGTERM (job cancelled, preempted, near its time limit) or SIGUSR2 (Slurm's ``--signal``) stops a job. The next
allreduce sends the signal to all ranks, so that they stop after the same step. Then rank 0 writes weights, optimizer
state, seeds, moving statistics, metrics, callback state and the position in the data to one file. The same script,
started again with the same run directory, reads the file and continues with the next batch.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras

from hpcrun.run.job import print_line
from hpcrun.run.stop import StopSignals
from hpcrun.train import checkpoint_file
from hpcrun.train.rank_state import rank_state
from hpcrun.train.ranks import failure
from hpcrun.train.ranks.collectives import checked_allgather, checked_barrier
from hpcrun.train.ranks.world import world
from hpcrun.train.result import training_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np

    from hpcrun.train.checkpoint_file import TrainingPosition
    from hpcrun.train.types import Keras, Logs

    Array = np.ndarray[Any, Any]

SECONDS_BETWEEN_CHECKPOINTS = 600.0  # minimum time between checkpoints at the ends of epochs
_fit_numbers = count()


class Checkpoint(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Last callback of a `fit`, which reads and writes its checkpoint.

    Args:
        file: The checkpoint file.
        position: The position at which the `fit` continues.
        arrays: The arrays of the file, on rank 0.
        user_callbacks: The user's callbacks.
        fit_number: Number of the `fit` in the script, from 0.
    """

    def __init__(
        self,
        file: Path,
        position: TrainingPosition,
        arrays: Mapping[str, Array],
        user_callbacks: Sequence[Keras],
        fit_number: int,
    ) -> None:
        super().__init__()
        self.file, self.position, self.user_callbacks, self.number = file, position, user_callbacks, fit_number
        self._arrays, self._last_write = arrays, time.monotonic()
        self._signals = StopSignals(self._request_exit)

    @contextmanager
    def handle_signals(self) -> Iterator[None]:
        """Record stop signals inside the block, so that they do not end the process."""
        with self._signals:
            yield
        if self._signal_number:  # `fit` is complete, but the signal must stop the script
            signal.raise_signal(self._signal_number)

    @property
    def _signal_number(self) -> int:
        """The number of the stop signal that this rank received; 0 if none."""
        return self._signals.received

    def _request_exit(self) -> None:
        for reducer in self._model.training_state.reducers:
            reducer.exit_requested = True

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Restore the state of the checkpoint file."""
        self._start_time = time.perf_counter() - self.position.seconds
        self._initial_states = [checkpoint_file.callback_state(callback) for callback in self.user_callbacks]
        self._will_resume = self.is_resumed()
        if self._will_resume:
            self._restore()

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Start the epoch at its first batch, or at the batch where it was interrupted."""
        training_state = self.model.training_state
        training_state.batch, training_state.skip = 0, self.position.batch if self._will_resume else 0
        if self._will_resume:
            self._will_resume = False
            self.model.history.epoch = list(self.position.history["epoch"])
            self.model.history.history = {name: list(values) for name, values in self.position.history["logs"].items()}
            # After a complete epoch, the file holds the metrics of that epoch.
            for variable, value in zip(
                self.model.metrics_variables if training_state.skip else [], self._metrics, strict=False
            ):
                variable.assign(value)
        self.position.epoch = epoch

    def stop_requested(self) -> bool:
        """Return whether a rank received a stop signal; equal on all ranks after a step."""
        reducers = self._model.training_state.reducers
        return any(reducer.exit_agreed for reducer in reducers) if reducers else bool(self._signal_number)

    def write_and_exit(self) -> None:
        """Write the checkpoint after a step, and exit. Collective."""
        self.position.batch = self._model.training_state.batch
        self._write()
        self._exit_job()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Write the checkpoint if a rank received a stop signal, or if the last checkpoint is too old."""
        is_due = world().rank == 0 and time.monotonic() - self._last_write > SECONDS_BETWEEN_CHECKPOINTS
        must_stop, must_write = (
            any(flags)
            for flags in zip(*checked_allgather("the end of an epoch", (self._signal_number, is_due)), strict=True)
        )
        self.position.epoch, self.position.batch = epoch + 1, 0
        self.position.stopped = bool(self.model.stop_training)
        if must_stop or must_write:
            self._write()
        if must_stop:
            self._exit_job()

    def on_train_end(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Write the final state of this `fit`, so that a later start of the job does not repeat it."""
        self._write()
        if any(checked_allgather("the end of training", self._signal_number)):
            self._exit_job()

    def is_resumed(self) -> bool:
        """Return whether a checkpoint file was read."""
        return bool(self.position.variables)

    def finished_history(self, epochs: int) -> keras.callbacks.History | None:
        """Restore the model after a completed `fit`, and return the history; None if the `fit` must continue.

        Args:
            epochs: Number of epochs to train.
        """
        if not self.is_resumed() or not (self.position.stopped or self.position.epoch >= epochs):
            return None
        self._restore()
        history = keras.callbacks.History()
        history.set_model(self.model)
        history.epoch, history.history = self.position.history["epoch"], self.position.history["logs"]
        self.model.history = history
        training_seconds.append(self.position.seconds)
        return history

    def _exit_job(self) -> None:
        signals_and_files = checked_allgather("the signal that ends the job", (self._signal_number, self.file.exists()))
        signal_number = max(signal_number for signal_number, _ in signals_and_files)
        position_text = f"epoch {self.position.epoch + 1}, after {self.position.batch} batches"
        text = f"stopped by {signal.Signals(signal_number).name} in {position_text}"
        if signals_and_files[0][1]:
            text += f"; to go on, start it again: it reads {self.file}"
        failure.report_and_abort(text, text, 128 + signal_number)

    def _write(self) -> None:
        model = self._model
        checked_barrier("a checkpoint")
        local_state = rank_state(model)
        ranks = world().comm.gather(local_state) if world().size > 1 else [local_state]
        if world().rank == 0:
            self.position.seconds = time.perf_counter() - self._start_time
            self.position.history = {"epoch": model.history.epoch, "logs": model.history.history}
            pairs = zip(self.user_callbacks, self._initial_states, strict=True)
            self.position.memory = [checkpoint_file.changed_state(callback, initial) for callback, initial in pairs]
            try:
                checkpoint_file.write_checkpoint(self.file, self.position, model, ranks)
            except OSError as error:  # a full disk must not end the training
                print(f"WARNING: no checkpoint in {self.file}: {error.strerror}", file=sys.stderr)
        self._last_write = time.monotonic()

    def _restore(self) -> None:
        self._metrics = checkpoint_file.restore_model(self.model, self.file, self.position, self._arrays)
        for callback, memory in zip(self.user_callbacks, self.position.memory, strict=False):
            checkpoint_file.restore_callback(callback, self.model, memory, self._arrays)
        if world().rank == 0:
            print_line(
                f"from {self.file}: {self.position.epoch} epochs and {self.position.batch} batches of the next are done"
            )


def open_checkpoint(
    folder: str | os.PathLike[str] | None, seed: int, user_callbacks: Sequence[Keras]
) -> Checkpoint | None:
    """Return the checkpoint callback of the next `fit`, or None if there is no folder for checkpoints.

    Args:
        folder: Folder of checkpoints; default: ``$HPCRUN_RUN_DIR/checkpoints`` if the variable is set.
        seed: Seed of the sample order if there is no checkpoint.
        user_callbacks: The user's callbacks, in the order of `fit`.
    """
    if folder is None and "HPCRUN_RUN_DIR" not in os.environ:
        return None
    folder = Path(folder) if folder is not None else Path(os.environ["HPCRUN_RUN_DIR"], "checkpoints")
    fit_number = next(_fit_numbers)
    file = folder.absolute() / f"fit-{fit_number}.npz"
    return Checkpoint(file, *checkpoint_file.read_checkpoint(file, seed), user_callbacks, fit_number)
