"""The model that a run has saved: its files, its classes, and how to load it. Nothing here starts MPI."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.errors import HpcrunError
from hpcrun.train.saved_model_record import BEST, LABELS, LAST, read_record

if TYPE_CHECKING:
    import keras

    from hpcrun.train.types import Data

_HINT = "hpcrun.train.run_callbacks() gives fit the callbacks that save one after each epoch (docs/images.md)"


@dataclass(frozen=True)
class SavedModel:
    """A saved model.

    Attributes:
        file: The Keras model.
        names: The names of its classes, in the order of its outputs; empty if they are unknown.
        epoch: The epoch after which it was saved; None if unknown.
        record: All of ``saved_model.json``; empty without one.
    """

    file: Path
    names: tuple[str, ...]
    epoch: int | None
    record: dict[str, Any]

    def name(self, number: int) -> str:
        """Return the name of an output, counted from 0; its number if it has none."""
        return self.names[number] if number < len(self.names) else str(number)


def find_saved_model(source: str | Path, *, best: bool = False) -> SavedModel:
    """Find the saved model of a run, or a model file.

    Args:
        source: A run directory, or a Keras model. Names of classes are read from ``labels.txt`` beside it.
        best: Whether to take the model of the best epoch instead of the last one.

    Raises:
        HpcrunError: There is no such model.
    """
    path = Path(source)
    folder = path if path.is_dir() else path.parent
    record = read_record(folder)
    file = folder / (record.get("best") or BEST if best else record.get("file") or LAST) if path.is_dir() else path
    if not file.is_file():
        what = f"{path} has no saved model ({file.name})" if path.is_dir() else f"there is no model {path}"
        raise HpcrunError(what, hint=_HINT if path.is_dir() else None)
    epochs = {record.get("file"): record.get("epoch"), record.get("best"): record.get("best_epoch")}
    return SavedModel(file, read_names(folder), epochs.get(file.name), record)


def read_names(folder: Path) -> tuple[str, ...]:
    """Return the names of the classes of a folder, the first one for output 0; empty if there are none."""
    with suppress(OSError):
        return tuple((folder / LABELS).read_text(encoding="utf-8").splitlines())
    return ()


def load_model(source: str | Path, *, best: bool = False) -> keras.Model:
    """Load the saved model of a run, also one with layers of `hpcrun.train`, without its optimizer.

    Args:
        source: A run directory, or a Keras model.
        best: Whether to take the model of the best epoch instead of the last one.

    Returns:
        A Keras model, not compiled.

    Raises:
        HpcrunError: There is no such model, or Keras cannot load it.
    """
    file = find_saved_model(source, best=best).file
    import keras

    import hpcrun.train.normalization  # noqa: F401  (registers SyncBatchNormalization)

    try:
        return keras.models.load_model(file, compile=False)
    except (OSError, ValueError, TypeError) as error:
        (first, *_) = str(error).strip().splitlines() or [type(error).__name__]
        raise HpcrunError(f"{file}: Keras cannot load this model: {first}") from error


def image_shape(model: keras.Model) -> tuple[int, int, int]:
    """Return height, width and channels of the images that a model takes.

    Raises:
        HpcrunError: It takes something else.
    """
    shape = getattr(model, "input_shape", None)
    if not isinstance(shape, tuple) or len(shape) != 4 or None in shape[1:] or shape[3] not in {1, 3}:
        raise HpcrunError(
            f"the model takes {shape}; expected images of a fixed size, (None, height, width, 3)",
            hint="give keras.Input the size of the images",
        )
    return shape[1:]


def count_classes(model: keras.Model) -> int:
    """Return the number of classes of a model.

    Raises:
        HpcrunError: Its output is not one number for each class.
    """
    shape = getattr(model, "output_shape", None)
    if not isinstance(shape, tuple) or len(shape) != 2 or not shape[1]:
        raise HpcrunError(f"the model's output is {shape}; expected one number for each class, (None, classes)")
    return int(shape[1])


def ends_in_softmax(model: keras.Model) -> bool:
    """Return whether a model's outputs are probabilities."""
    import keras

    last = model.layers[-1]
    if isinstance(last, keras.Model):
        return ends_in_softmax(last)
    return isinstance(last, keras.layers.Softmax) or getattr(last, "activation", None) is keras.activations.softmax


def to_probabilities(model: keras.Model, outputs: Data) -> Data:
    """Return the probabilities (samples, classes) of a model's outputs."""
    import keras

    return outputs if ends_in_softmax(model) else keras.ops.convert_to_numpy(keras.ops.softmax(outputs))
