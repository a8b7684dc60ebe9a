"""The checkpoint file: the variables of the model, the state of each rank and callback, the position in the data."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, cast
from zipfile import BadZipFile, ZipFile

import numpy as np
from keras.src.callbacks.monitor_callback import MonitorCallback

from hpcrun import permissions
from hpcrun.errors import HpcrunError
from hpcrun.train.gradients.optimizer import find_optimizers
from hpcrun.train.rank_state import array_of, assign, restore_rank_state
from hpcrun.train.ranks.world import world
from hpcrun.train.state import broadcast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import keras

    from hpcrun.train.rank_state import RankState
    from hpcrun.train.types import Keras

    Array = np.ndarray[Any, Any]


@dataclass
class TrainingPosition:
    """The progress of a `fit`, and the state of its callbacks.

    Args:
        epoch: Number of complete epochs.
        batch: Number of complete batches of the next epoch.
        seed: Seed of the sample order.
        stopped: Whether a callback stopped the training.
        seconds: Training time so far in seconds.
        history: Keras's history: epochs, and a list of values for each metric.
        memory: For each callback of the user, the attributes that changed during the training.
        variables: Shape and dtype of each variable of the model and its optimizers.
        trained: For each optimizer, the indices of the variables that it trains; None if the optimizer is not built.
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


def read_checkpoint(file: Path, seed: int) -> tuple[TrainingPosition, Mapping[str, Array]]:
    """Read a checkpoint file on rank 0, and broadcast the content. Collective.

    Args:
        file: The checkpoint file, which may not exist.
        seed: Seed of the sample order if there is no file.

    Returns:
        The position at which `fit` continues; and arrays by name: on rank 0 all arrays, on other ranks the arrays of
        callbacks.

    Raises:
        HpcrunError: The file is damaged, or from a different version of hpcrun.
    """
    arrays: Mapping[str, Array] = {}
    position = TrainingPosition(seed=seed)
    if world().rank == 0 and file.exists():
        try:
            arrays = _open_archive(file)
            position = TrainingPosition(**json.loads(str(arrays["place"])))
            logs = position.history["logs"].items()
            position.history["logs"] = {name: _load_arrays(arrays, values) for name, values in logs}
        except (OSError, EOFError, ValueError, LookupError, TypeError, BadZipFile) as error:
            message = f"this version of hpcrun cannot read the checkpoint {file}: {error}"
            raise HpcrunError(message, hint="remove it to train from the start") from error
        position.variables = [(shape, dtype) for shape, dtype in position.variables]
    if world().size > 1:
        callback_arrays = {name: arrays[name] for name in arrays if name.startswith("aside/")}
        position, callback_arrays = world().comm.bcast((position, callback_arrays))
        arrays = arrays or callback_arrays
    return position, arrays


def _open_archive(file: Path) -> Mapping[str, Array]:
    """Return the arrays of a file, each read when it is needed, because a rank may be too small for all.

    Raises:
        BadZipFile: An array is damaged.
    """
    archive: Any = np.load(file)
    if damaged := archive.zip.testzip():
        raise BadZipFile(f"{damaged} is damaged")
    return cast("Mapping[str, Array]", archive)


def write_checkpoint(file: Path, position: TrainingPosition, model: keras.Model, ranks: Sequence[RankState]) -> None:
    """Write a checkpoint file atomically: a job that dies during the write keeps the previous checkpoint.

    Args:
        file: The checkpoint file.
        position: The position of the `fit`; this function sets `variables` and `trained`.
        model: The model at this position.
        ranks: The `rank_state` of each rank, in rank order.

    Raises:
        OSError: The file cannot be written.
    """
    position.variables, position.trained = _shapes_and_dtypes(model), _trained_variables(model)
    arrays: dict[str, Any] = {
        f"rank/{r}/{kind}/{i}": a
        for r, state_of_rank in enumerate(ranks)
        for kind in state_of_rank
        for i, a in enumerate(state_of_rank[kind])
    }
    arrays["place"] = np.array(json.dumps(asdict(position), default=lambda array: _store_array(arrays, array)))
    # With pipeline stages, a variable may be on another rank, so that reading its value takes memory only for a while.
    variables = ((f"variable/{i}", array_of(v)) for i, v in enumerate(_variables(model)))
    permissions.make_folder(file.parent)
    temporary_file = file.with_name(f".{file.name}")
    try:
        with open(temporary_file, "wb", opener=permissions.opener) as stream:
            _write_arrays(stream, chain(variables, arrays.items()))
            os.fsync(stream.fileno())
        temporary_file.replace(file)
    finally:
        temporary_file.unlink(missing_ok=True)


def _write_arrays(stream: IO[bytes], arrays: Iterable[tuple[str, Array]]) -> None:
    """Write arrays one by one, as `numpy.savez` does."""
    with ZipFile(stream, "w") as archive:
        for name, array in arrays:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def restore_model(
    model: keras.Model, file: Path, position: TrainingPosition, arrays: Mapping[str, Array]
) -> list[Array]:
    """Restore a model from a checkpoint on all ranks. Collective.

    Args:
        model: The model, changed in place.
        file: Path of the checkpoint file, for the error message.
        position: The position that `read_checkpoint` returned.
        arrays: The arrays that `read_checkpoint` returned.

    Returns:
        The values of this rank's metrics if the checkpoint is from the middle of an epoch.

    Raises:
        HpcrunError: The file is the checkpoint of a different model.
    """
    _build_optimizers(model, position.trained)
    if world().rank == 0:
        variables = _shapes_and_dtypes(model)
        if position.variables != variables:
            raise HpcrunError(
                f"{file} is the checkpoint of another model: its {len(position.variables)} variables are not "
                f"this one's {len(variables)}, in number, shape or dtype",
                hint="remove it to train from the start",
            )
        pipeline = model.training_state.pipeline
        with pipeline.service.writing() if pipeline else nullcontext():
            for i, variable in enumerate(_variables(model)):
                assign(variable, arrays[f"variable/{i}"])
    broadcast(model)
    return restore_rank_state(model, arrays)


def callback_state(callback: Keras) -> dict[str, Any]:
    """Return the attributes of a callback that are numbers, strings, arrays, or lists of these types."""
    return {name: value for name, value in vars(callback).items() if _is_serializable(value)}


def changed_state(callback: Keras, initial_state: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a callback that have changed.

    Args:
        callback: A Keras callback.
        initial_state: The result of `callback_state` when the training began.
    """
    return {
        name: value
        for name, value in callback_state(callback).items()
        if not _is_unchanged(initial_state.get(name), value)
    }


def restore_callback(
    callback: Keras, model: keras.Model, saved_attributes: dict[str, Any], arrays: Mapping[str, Array]
) -> None:
    """Restore the state of a callback.

    Args:
        callback: The callback, changed in place.
        model: The model of the training.
        saved_attributes: The result of `changed_state`, from a checkpoint file.
        arrays: The arrays that `read_checkpoint` returned.
    """
    if saved_attributes and isinstance(callback, MonitorCallback):
        callback._model = callback.model or model  # noqa: SLF001  (Keras sets _model only for callbacks of this rank)
        callback._set_monitor_op()  # noqa: SLF001  (Keras would call it after an epoch, and negate min_delta)
    for name, value in saved_attributes.items():
        setattr(callback, name, _load_arrays(arrays, value))


def _variables(model: keras.Model) -> list[keras.Variable]:
    return [*model.variables, *(v for optimizer in find_optimizers(model) for v in optimizer.variables)]


def _trained_variables(model: keras.Model) -> list[list[int] | None]:
    index_of_variable = {id(variable): i for i, variable in enumerate(model.variables)}
    return [
        [index_of_variable[id(v)] for v in o._trainable_variables if id(v) in index_of_variable] if o.built else None  # noqa: SLF001
        for o in find_optimizers(model)
    ]


def _build_optimizers(model: keras.Model, trained_variables: Sequence[Sequence[int] | None]) -> None:
    """Build the optimizers, which a custom training step would build in its first call."""
    for optimizer, indices in zip(find_optimizers(model), trained_variables, strict=False):
        if indices is not None and not optimizer.built and max(indices, default=0) < len(model.variables):
            optimizer.build([model.variables[i] for i in indices])


def _shapes_and_dtypes(model: keras.Model) -> list[tuple[list[int], str]]:
    return [(list(v.shape), str(v.dtype)) for v in _variables(model)]


def _is_serializable(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_serializable, value))
    return value is None or isinstance(value, bool | int | float | str | np.ndarray | np.generic)


def _is_unchanged(initial_value: Any, current_value: Any) -> bool:
    return (
        type(initial_value) is type(current_value)
        and not isinstance(initial_value, list | np.ndarray)
        and initial_value == current_value
    )


def _store_array(arrays: dict[str, Array], value: Any) -> dict[str, str]:
    name = f"aside/{len(arrays)}"
    arrays[name] = np.asarray(value)
    return {"array": name}


def _load_arrays(arrays: Mapping[str, Array], value: Any) -> Any:
    if isinstance(value, dict):
        array = arrays[value["array"]]
        return array if array.ndim else array[()]
    return [_load_arrays(arrays, item) for item in value] if isinstance(value, list) else value
