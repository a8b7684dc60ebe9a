"""The checkpoint file: the model's variables, the state of each rank, callback state, the position in the data."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from keras.src.callbacks.monitor_callback import MonitorCallback

from hpcrun import permissions
from hpcrun.errors import HpcrunError
from hpcrun.train.gradients.optimizer import find_optimizers
from hpcrun.train.rank_state import array_of, assign, restore_rank_state
from hpcrun.train.ranks.world import world
from hpcrun.train.state import broadcast

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import keras

    from hpcrun.train.rank_state import RankState
    from hpcrun.train.types import Keras

    Array = np.ndarray[Any, Any]


@dataclass
class TrainingPosition:
    """The position of a `fit` in its training.

    Args:
        epoch: The number of complete epochs.
        batch: The number of complete batches of the next epoch.
        seed: The seed of the sample order.
        stopped: Whether a callback stopped the training.
        seconds: The training time so far.
        history: Keras's history: epochs, and a list per metric.
        memory: The state of each of the user's callbacks.
        variables: The shape and dtype of each variable of the model and its optimizers.
        trained: The numbers of the variables that each optimizer was built for; None if it was not built.
    """

    epoch: int = 0
    batch: int = 0
    seed: int = 0
    stopped: bool = False
    seconds: float = 0.0
    history: dict[str, Any] = field(default_factory=dict)
    memory: list[dict[str, Any]] = field(default_factory=list)
    variables: list[tuple[list[int], str]] = field(default_factory=list)
    trained: list[list[int] | None] = field(default_factory=list)


def read_checkpoint(file: Path, seed: int) -> tuple[TrainingPosition, dict[str, Array]]:
    """Read a checkpoint file on rank 0 and broadcast it; every rank must call this.

    Args:
        file: The file.
        seed: The seed of the sample order if there is no file.

    Returns:
        The position of its `fit`, and arrays by name: all of them on rank 0, those of callbacks on the others.

    Raises:
        HpcrunError: The file is damaged, or of another version.
    """
    arrays: dict[str, Array] = {}
    place = TrainingPosition(seed=seed)
    if world().rank == 0 and file.exists():
        try:
            with np.load(file) as archive:
                arrays = dict(archive)
            place = TrainingPosition(**json.loads(str(arrays.pop("place"))))
            logs = place.history["logs"].items()
            place.history["logs"] = {name: _load_arrays(arrays, values) for name, values in logs}
        except (OSError, EOFError, ValueError, LookupError, TypeError, BadZipFile) as error:
            message = f"this version of hpcrun cannot read the checkpoint {file}: {error}"
            raise HpcrunError(message, hint="remove it to train from the start") from error
        place.variables = [(shape, dtype) for shape, dtype in place.variables]
    if world().size > 1:
        aside = {name: array for name, array in arrays.items() if name.startswith("aside/")}
        place, aside = world().comm.bcast((place, aside))
        arrays |= aside
    return place, arrays


def write_checkpoint(file: Path, place: TrainingPosition, model: keras.Model, ranks: Sequence[RankState]) -> None:
    """Write a file atomically: a job that dies meanwhile keeps the previous checkpoint.

    Args:
        file: The file.
        place: The position of the `fit`; the entries about variables are filled in here.
        model: The model at that position.
        ranks: The `rank_state` of each rank.

    Raises:
        OSError: The file cannot be written.
    """
    place.variables, place.trained = _shapes_and_dtypes(model), _trained_variables(model)
    arrays: dict[str, Any] = {f"variable/{i}": array_of(v) for i, v in enumerate(_variables(model))}
    arrays |= {
        f"rank/{r}/{kind}/{i}": a for r, own in enumerate(ranks) for kind in own for i, a in enumerate(own[kind])
    }
    arrays["place"] = np.array(json.dumps(asdict(place), default=lambda array: _store_array(arrays, array)))
    permissions.make_folder(file.parent)
    new = file.with_name(f".{file.name}")
    try:
        with open(new, "wb", opener=permissions.opener) as stream:
            np.savez(stream, **arrays)
            os.fsync(stream.fileno())
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)


def restore_model(model: keras.Model, file: Path, place: TrainingPosition, arrays: dict[str, Array]) -> list[Array]:
    """Restore a model from a checkpoint on all ranks; every rank must call this.

    Args:
        model: Changed in place.
        file: The file name for the error.
        place: Of `read`.
        arrays: Likewise.

    Returns:
        This rank's metric state in the middle of an epoch.

    Raises:
        HpcrunError: The file is the checkpoint of another model.
    """
    _build_optimizers(model, place.trained)
    if world().rank == 0:
        variables = _shapes_and_dtypes(model)
        if place.variables != variables:
            raise HpcrunError(
                f"{file} is the checkpoint of another model: its {len(place.variables)} variables are not "
                f"this one's {len(variables)}, in number, shape or dtype",
                hint="remove it to train from the start",
            )
        for i, variable in enumerate(_variables(model)):
            assign(variable, arrays[f"variable/{i}"])
    broadcast(model)
    return restore_rank_state(model, arrays)


def callback_state(callback: Keras) -> dict[str, Any]:
    """Return the state of a callback: numbers, strings, arrays, and lists of them."""
    return {name: value for name, value in vars(callback).items() if _is_serializable(value)}


def changed_state(callback: Keras, initial: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a callback that has changed.

    Args:
        callback: A callback.
        initial: What `memory` gave then.
    """
    return {
        name: value for name, value in callback_state(callback).items() if not _is_unchanged(initial.get(name), value)
    }


def restore_callback(callback: Keras, model: keras.Model, changed: dict[str, Any], arrays: dict[str, Array]) -> None:
    """Restore the state of a callback.

    Args:
        callback: Changed in place.
        model: The model of the training.
        changed: Of `changes`, from a file.
        arrays: Of `read`.
    """
    if changed and isinstance(callback, MonitorCallback):
        callback._model = callback.model or model  # noqa: SLF001  (Keras sets it only for callbacks of this rank)
        callback._set_monitor_op()  # noqa: SLF001  (Keras does it at the end of an epoch, and negates min_delta)
    for name, value in changed.items():
        setattr(callback, name, _load_arrays(arrays, value))


def _variables(model: keras.Model) -> list[keras.Variable]:
    return [*model.variables, *(v for optimizer in find_optimizers(model) for v in optimizer.variables)]


def _trained_variables(model: keras.Model) -> list[list[int] | None]:
    numbers = {id(variable): i for i, variable in enumerate(model.variables)}
    return [
        [numbers[id(v)] for v in o._trainable_variables if id(v) in numbers] if o.built else None  # noqa: SLF001
        for o in find_optimizers(model)
    ]


def _build_optimizers(model: keras.Model, trained: Sequence[Sequence[int] | None]) -> None:
    """Build the optimizers that a custom training step builds in its first call."""
    for optimizer, numbers in zip(find_optimizers(model), trained, strict=False):
        if numbers is not None and not optimizer.built and max(numbers, default=0) < len(model.variables):
            optimizer.build([model.variables[i] for i in numbers])


def _shapes_and_dtypes(model: keras.Model) -> list[tuple[list[int], str]]:
    return [(list(v.shape), str(v.dtype)) for v in _variables(model)]


def _is_serializable(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_serializable, value))
    return value is None or isinstance(value, bool | int | float | str | np.ndarray | np.generic)


def _is_unchanged(one: Any, other: Any) -> bool:
    return type(one) is type(other) and not isinstance(one, list | np.ndarray) and one == other


def _store_array(arrays: dict[str, Array], value: Any) -> dict[str, str]:
    name = f"aside/{len(arrays)}"
    arrays[name] = np.asarray(value)
    return {"array": name}


def _load_arrays(arrays: dict[str, Array], value: Any) -> Any:
    if isinstance(value, dict):
        array = arrays[value["array"]]
        return array if array.ndim else array[()]
    return [_load_arrays(arrays, each) for each in value] if isinstance(value, list) else value
