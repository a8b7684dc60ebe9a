"""Saved models of runs: search and loading, without MPI."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.errors import HpcrunError, pluralize
from hpcrun.frozen import frozen
from hpcrun.train.saved_model_record import BEST, LABELS, LAST, read_record

if TYPE_CHECKING:
    from collections.abc import Collection

    import keras

    from hpcrun.train.types import Data

_HINT = "fit(callbacks=hpcrun.train.run_callbacks()) saves a model after each epoch (docs/images.md)"

_LOAD_HINT = (
    "the file is damaged, or the model needs classes of its script, "
    "which keras.saving.register_keras_serializable makes known"
)

_TORCH_HINT = "its model.pt is of PyTorch: torch.load reads the weights (docs/workloads.md)"


@frozen
class SavedModel:
    """A saved model.

    Attributes:
        file: Path of the Keras model.
        names: Class name of each output; empty if the names are unknown.
        epoch: Epoch after which the model was saved; None if unknown.
        record: Content of ``saved_model.json``; empty if the file does not exist.
    """

    file: Path
    names: tuple[str, ...]
    epoch: int | None
    record: dict[str, Any]

    def name(self, output_index: int) -> str:
        """Return the class name of an output, given its index; if the name is unknown, return the index as text."""
        return self.names[output_index] if output_index < len(self.names) else str(output_index)


def find_saved_model(source: str | Path, *, best: bool = False) -> SavedModel:
    """Find the saved model of a run, or a model file.

    Args:
        source: A run directory, or a file of a Keras model with ``labels.txt`` in the same folder.
        best: Whether to use the model of the best epoch instead of the last epoch.

    Raises:
        HpcrunError: The model does not exist.
    """
    path = Path(source)
    folder = path if path.is_dir() else path.parent
    record = read_record(folder)
    file = folder / (record.get("best") or BEST if best else record.get("file") or LAST) if path.is_dir() else path
    if not file.is_file():
        problem = f"{path} has no saved model ({file.name})" if path.is_dir() else f"there is no model {path}"
        hint = _TORCH_HINT if (folder / "model.pt").is_file() else _HINT
        raise HpcrunError(problem, hint=hint if path.is_dir() else None)
    epochs = {record.get("file"): record.get("epoch"), record.get("best"): record.get("best_epoch")}
    return SavedModel(file, read_names(folder), epochs.get(file.name), record)


def read_names(folder: Path) -> tuple[str, ...]:
    """Return the class names in a folder's ``labels.txt``, beginning with output 0; empty if it does not exist."""
    with suppress(OSError):
        return tuple((folder / LABELS).read_text(encoding="utf-8", errors="backslashreplace").splitlines())
    return ()


def load_model(source: str | Path, *, best: bool = False) -> keras.Model:
    """Load the saved model of a run, without its optimizer; layers of `hpcrun.train` are supported.

    Args:
        source: A run directory, or a file of a Keras model.
        best: Whether to use the model of the best epoch instead of the last epoch.

    Returns:
        A Keras model, not compiled.

    Raises:
        HpcrunError: The model does not exist, or Keras cannot load it.
        ImportError: A package that Keras needs to read the file is not installed.
    """
    file = find_saved_model(source, best=best).file
    import keras

    import hpcrun.train.normalization  # noqa: F401  (registers SyncBatchNormalization)

    try:
        return keras.models.load_model(file, compile=False)
    except ImportError:
        raise  # of a package that is missing, such as h5py
    except Exception as error:  # Keras raises exceptions of many types for damaged files
        reason = ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
        raise HpcrunError(f"{file}: Keras cannot load this model: {reason}", hint=_LOAD_HINT) from error


def image_shape(model: keras.Model) -> tuple[int, int, int]:
    """Return height, width and channels of the images that a model takes.

    Raises:
        HpcrunError: The input of the model is not a batch of images of a fixed size.
    """
    shape = getattr(model, "input_shape", None)
    if not isinstance(shape, tuple) or len(shape) != 4 or None in shape[1:] or shape[3] not in {1, 3}:
        raise HpcrunError(
            f"the model takes {shape}; expected images of a fixed size, (None, height, width, 3)",
            hint="give keras.Input the size of the images",
        )
    return shape[1:]


def image_size(model: keras.Model, channels: Collection[int] = (1, 3)) -> int:
    """Return height and width of the images that a model takes.

    Args:
        model: The model.
        channels: The numbers of channels that the caller supports.

    Raises:
        HpcrunError: The images are not square, or have a different number of channels.
    """
    height, width, found_channels = image_shape(model)
    if height != width:
        message = f"the model takes images of {height} x {width}, which are not square"
        raise HpcrunError(message, hint="give keras.Input a square")
    if found_channels not in channels:
        raise HpcrunError(
            f"the model takes images with {pluralize(found_channels, 'channel')}", hint="use a model of colour images"
        )
    return height


def count_classes(model: keras.Model) -> int:
    """Return the number of classes of a model.

    Raises:
        HpcrunError: The output of the model is not one number per class.
    """
    shape = getattr(model, "output_shape", None)
    if not isinstance(shape, tuple) or len(shape) != 2 or not shape[1]:
        raise HpcrunError(f"the model's output is {shape}; expected one number for each class, (None, classes)")
    return int(shape[1])


def ends_in_softmax(model: keras.Model) -> bool:
    """Return whether the outputs of a model are probabilities of classes, of which each sample has one."""
    return _last_activation(model) == "softmax"


def _last_activation(model: keras.Model) -> str:
    """Return the name of the activation of a model's last layer; empty if it has none."""
    import keras

    last_layer = model.layers[-1]
    if isinstance(last_layer, keras.Model):
        return _last_activation(last_layer)
    if isinstance(last_layer, keras.layers.Softmax):
        return "softmax"
    return getattr(getattr(last_layer, "activation", None), "__name__", "")


def to_probabilities(model: keras.Model, outputs: Data) -> Data:
    """Convert the outputs of a model to probabilities (samples, classes).

    A sigmoid yields the probability of each class, and a single one that of the second of two classes.

    Raises:
        HpcrunError: The model has a single output that is not a probability.
    """
    import keras
    import numpy as np

    activation = _last_activation(model)
    if activation == "sigmoid":
        return np.concatenate([1 - outputs, outputs], axis=1) if outputs.shape[1] == 1 else outputs
    if outputs.shape[1] == 1:
        hint = "end the model in one output for each class, or in a sigmoid"
        raise HpcrunError("the only output of the model is not a probability", hint=hint)
    return outputs if activation == "softmax" else keras.ops.convert_to_numpy(keras.ops.softmax(outputs))
