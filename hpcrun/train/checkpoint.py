"""Checkpoints: all that a `fit` needs to go on as if nothing had stopped it.

A job is stopped by SIGTERM (cancelled, preempted, near its time limit) or by SIGUSR2 (Slurm's ``--signal``). The rank
that is told passes it on with the next gradients, so that all ranks stop after the same step. Then weights, optimizer,
seeds, moving statistics, metrics, the callbacks' memory and the place in the data are written to one file, by rank 0;
the same script, started again with the same run directory, reads it and goes on with the next batch.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from keras.src.callbacks.monitor_callback import MonitorCallback

from hpcrun.errors import HpcrunError
from hpcrun.train.gradients.optimizer import reducer_of
from hpcrun.train.ranks import failure
from hpcrun.train.ranks.world import gathered, meet, say, world
from hpcrun.train.state import broadcast

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from hpcrun.train.kinds import Keras, Logs

    Array = np.ndarray[Any, Any]

EVERY = 600.0  # seconds between checkpoints at the ends of epochs
_SIGNALS = (signal.SIGTERM, signal.SIGUSR2)
_fits = count()


@dataclass
class Place:
    """How far a `fit` has come.

    Args:
        epoch: Epochs that are done.
        batch: Batches of the next one that are done.
        seed: That of the samples' order.
        stopped: Whether a callback ended it.
        history: Keras's: epochs, and a list for each figure.
        memory: What each of the user's callbacks remembers.
        variables: Shape and dtype of each of the model's and the optimizer's.
    """

    epoch: int = 0
    batch: int = 0
    seed: int = 0
    stopped: bool = False
    history: dict[str, Any] = field(default_factory=dict)
    memory: list[dict[str, Any]] = field(default_factory=list)
    variables: list[tuple[list[int], str]] = field(default_factory=list)


class Checkpoint(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Writes and reads the checkpoint of one `fit`; the last of its callbacks.

    Args:
        file: Where it is.
        place: Where the `fit` goes on.
        arrays: What the file holds, on rank 0.
        users: The user's callbacks.
    """

    async_safe = True  # it has no hook that is called every batch

    def __init__(self, file: Path, place: Place, arrays: dict[str, Array], users: Sequence[Keras]) -> None:
        super().__init__()
        self.file, self.place, self.users = file, place, users
        self._arrays, self._written, self._signal = arrays, time.monotonic(), 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take note of signals inside the block, instead of dying of them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        self._signal = number
        if reducer := reducer_of(self._model.optimizer):
            reducer.halt = True

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Go back to where the file says."""
        self._reducer = reducer_of(self.model.optimizer)
        self._fresh = [_memory(user) for user in self.users]
        self._resumes = self.resumed()
        if self._resumes:
            self._restore()

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Begin an epoch at its first batch, or the first one where it was interrupted."""
        course = self.model.course
        course.batch, course.skip = 0, self.place.batch if self._resumes else 0
        if self._resumes:
            self._resumes = False
            self.model.history.epoch = list(self.place.history["epoch"])
            self.model.history.history = {name: list(values) for name, values in self.place.history["logs"].items()}
            # At the end of an epoch they held that epoch's.
            for variable, value in zip(
                self.model.metrics_variables if course.skip else [], self._metrics, strict=False
            ):
                variable.assign(value)
        self.place.epoch = epoch

    def told(self) -> bool:
        """Return whether a rank was told to leave; after a step, all ranks find the same."""
        return bool(self._reducer.halts if self._reducer else self._signal)

    def interrupt(self) -> None:
        """Write the file after a step, and leave; every rank must call it."""
        self.place.batch = self._model.course.batch
        self._write()
        self._leave()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Write the file where a rank was told to stop, or where the last one is old."""
        due = world().rank == 0 and time.monotonic() - self._written > EVERY
        told, due = (any(each) for each in zip(*gathered("the end of an epoch", (self._signal, due)), strict=True))
        self.place.epoch, self.place.batch = epoch + 1, 0
        self.place.stopped = bool(self.model.stop_training)
        if told or due:
            self._write()
        if told:
            self._leave()

    def on_train_end(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Write what this `fit` ends with: a job that is stopped later need not repeat it."""
        self._write()

    def resumed(self) -> bool:
        """Return whether there was a file."""
        return bool(self.place.variables)

    def done(self, epochs: int) -> keras.callbacks.History | None:
        """Return the history of a `fit` that the file holds to its end, with the model as it ended; else None.

        Args:
            epochs: How many it should have.
        """
        if not self.resumed() or not (self.place.stopped or self.place.epoch >= epochs):
            return None
        self._restore()
        history = keras.callbacks.History()
        history.set_model(self.model)
        history.epoch, history.history = self.place.history["epoch"], self.place.history["logs"]
        self.model.history = history
        return history

    def _leave(self) -> None:
        everybody = gathered("the signal that ends the job", (self._signal, self.file.exists()))
        number = max(number for number, _ in everybody)
        place = f"epoch {self.place.epoch + 1}, after {self.place.batch} batches"
        text = f"stopped by {signal.Signals(number).name} in {place}"
        if everybody[0][1]:
            text += f"; to go on, start it again: it reads {self.file}"
        failure.report(text, text, 128 + number)

    def _write(self) -> None:
        model = self._model
        meet("a checkpoint")
        ranks = world().comm.gather(_own(model)) if world().size > 1 else [_own(model)]
        if world().rank == 0:
            self.place.variables = _kinds(model)
            self.place.history = {"epoch": model.history.epoch, "logs": model.history.history}
            self.place.memory = [
                {k: v for k, v in _memory(user).items() if not _equal(fresh.get(k), v)}
                for user, fresh in zip(self.users, self._fresh, strict=True)
            ]
            arrays = {f"variable/{i}": _value(v) for i, v in enumerate(_variables(model))}
            arrays |= {f"rank/{r}/{i}": a for r, own in enumerate(ranks) for i, a in enumerate(own)}
            memory = json.dumps(asdict(self.place), default=lambda array: _set_aside(arrays, array))
            try:
                _replace(self.file, arrays | {"place": np.array(memory)})
            except OSError as error:  # a disk that is full is no reason to end a training
                print(f"WARNING: no checkpoint in {self.file}: {error.strerror}", file=sys.stderr)
        self._written = time.monotonic()

    def _restore(self) -> None:
        if world().rank == 0:
            self._restore_chief()
        broadcast(self.model)
        self._restore_own()
        for user, memory in zip(self.users, self.place.memory, strict=False):
            if memory and isinstance(user, MonitorCallback):
                user._set_monitor_op()  # noqa: SLF001  (Keras would at the next epoch's end, and negate min_delta)
            vars(user).update({name: _take_back(self._arrays, value) for name, value in memory.items()})
        if world().rank == 0:
            say(f"from {self.file}: {self.place.epoch} epochs and {self.place.batch} batches of the next are done")

    def _restore_chief(self) -> None:
        kinds = _kinds(self.model)
        if self.place.variables != kinds:
            raise HpcrunError(
                f"{self.file} is the checkpoint of another model: its {len(self.place.variables)} variables are not "
                f"this one's {len(kinds)}, in number, shape or dtype",
                hint="remove it to train from the start",
            )
        for i, variable in enumerate(_variables(self.model)):
            _assign(variable, self._arrays[f"variable/{i}"])

    def _restore_own(self) -> None:
        """Give every rank back what was its own; where there are more or fewer ranks now, what comes to the same."""
        me, model, ranks = world(), self.model, []
        if me.rank == 0:
            width = len(_own(model))
            there = sum(name.startswith("rank/") for name in self._arrays) // width
            ranks = [[self._arrays[f"rank/{r}/{i}"] for i in range(width)] for r in range(there)]
        if me.size > 1:
            ranks = me.comm.bcast(ranks)
        metrics = len(model.metrics_variables)
        if len(ranks) == me.size:
            self._metrics, others = ranks[me.rank][:metrics], ranks[me.rank][metrics:]
            for variable, value in zip(model.non_trainable_variables, others, strict=False):
                _assign(variable, value)
            _set_generators(others[len(model.non_trainable_variables) :])
            return
        columns = list(zip(*ranks, strict=True))
        sums = [np.sum(column, axis=0) for column in columns[:metrics]]  # it does not matter which rank holds them
        self._metrics = sums if me.rank == 0 else [np.zeros_like(total) for total in sums]
        for variable, column in zip(model.non_trainable_variables, columns[metrics:], strict=False):
            if "float" in variable.dtype:
                variable.assign(np.mean(column, axis=0))


class Resumed(keras.callbacks.CallbackList):  # type: ignore[misc]  # keras is untyped
    """Callbacks that do not see again the batches of the first epoch that were done before an interruption."""

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Pass on what is not repeated."""
        if batch >= self._model.course.skip:
            super().on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Pass on what is not repeated."""
        if batch >= self._model.course.skip:
            super().on_train_batch_end(batch, logs)


def checkpoint(folder: str | os.PathLike[str] | None, seed: int, users: Sequence[Keras]) -> Checkpoint | None:
    """Return the checkpoint of the `fit` that begins, as it was left, or None where there is no place for one.

    Args:
        folder: Where checkpoints go; without one ``$HPCRUN_RUN_DIR/checkpoints``, without that none.
        seed: For the samples' order, where there was no checkpoint.
        users: The user's callbacks, in their order.
    """
    if folder is None and "HPCRUN_RUN_DIR" not in os.environ:
        return None
    folder = Path(folder) if folder is not None else Path(os.environ["HPCRUN_RUN_DIR"], "checkpoints")
    file = folder.absolute() / f"fit-{next(_fits)}.npz"
    arrays: dict[str, Array] = {}
    place = Place(seed=seed)
    if world().rank == 0 and file.exists():
        with np.load(file) as kept:
            arrays = dict(kept)
        place = Place(**json.loads(str(arrays.pop("place"))))
        place.variables = [(shape, dtype) for shape, dtype in place.variables]
    if world().size > 1:
        aside = {name: array for name, array in arrays.items() if name.startswith("aside/")}
        place, aside = world().comm.bcast((place, aside))
        arrays |= aside
    return Checkpoint(file, place, arrays, users)


def _replace(file: Path, arrays: dict[str, Any]) -> None:
    """Write a file as a whole: a job that dies in the middle of it finds the last one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}")
    try:
        with new.open("wb") as stream:
            np.savez(stream, **arrays)
            os.fsync(stream.fileno())
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)


def attach_state(model: keras.Model, state: Keras) -> None:
    """Give a model on JAX the state that a training step returned, which Keras does at the end of an epoch only."""
    names = ("trainable_variables", "non_trainable_variables", "optimizer_variables", "metrics_variables")
    model._jax_state = dict(zip(names, state, strict=True))  # noqa: SLF001
    model._jax_state_synced = False  # noqa: SLF001
    model.jax_state_sync()


def _variables(model: keras.Model) -> list[keras.Variable]:
    return [*model.variables, *getattr(model.optimizer, "variables", [])]


def _kinds(model: keras.Model) -> list[tuple[list[int], str]]:
    return [(list(v.shape), str(v.dtype)) for v in _variables(model)]


def _value(variable: keras.Variable) -> Array:
    return np.asarray(keras.ops.convert_to_numpy(variable.value))


def _assign(variable: keras.Variable, value: Array) -> None:
    variable.assign(value.view(variable.dtype) if value.dtype.kind == "V" else value)  # NumPy has no bfloat16


def _own(model: keras.Model) -> list[Array]:
    """Return what differs from rank to rank: metrics, moving statistics and seeds, PyTorch's generators."""
    return [*(_value(v) for v in (*model.metrics_variables, *model.non_trainable_variables)), *_generators()]


def _generators() -> list[Array]:
    if keras.backend.backend() != "torch":
        return []
    import torch

    return [torch.get_rng_state().numpy(), *(state.numpy() for state in torch.cuda.get_rng_state_all())]


def _set_generators(states: Sequence[Array]) -> None:
    if states:
        import torch

        torch.set_rng_state(torch.from_numpy(states[0].copy()))
        torch.cuda.set_rng_state_all([torch.from_numpy(state.copy()) for state in states[1:]])


def _memory(callback: Keras) -> dict[str, Any]:
    """Return what a callback remembers: numbers, words, arrays, and lists of them."""
    return {name: value for name, value in vars(callback).items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str | np.ndarray | np.generic)


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and not isinstance(one, list | np.ndarray) and one == other


def _set_aside(arrays: dict[str, Array], value: Any) -> dict[str, str]:
    name = f"aside/{len(arrays)}"
    arrays[name] = np.asarray(value)
    return {"array": name}


def _take_back(arrays: dict[str, Array], value: Any) -> Any:
    if isinstance(value, dict):
        array = arrays[value["array"]]
        return array if array.ndim else array[()]
    return [_take_back(arrays, each) for each in value] if isinstance(value, list) else value
