"""Program of ``hpcrun export``, which converts a saved model to the format of a different program."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from hpcrun.errors import HpcrunError
from hpcrun.train.host_program import serve
from hpcrun.train.saved_model import find_saved_model, load_model

if TYPE_CHECKING:
    from collections.abc import Callable

    import keras

    from hpcrun.train.types import Json


def export_model(request: Json, report: Callable[[int, int], None]) -> Json:  # noqa: ARG001  (all export functions have the same arguments)
    """Export a saved model, and its class names if known.

    Args:
        request: ``model``, ``best``, ``format``, and ``output``, the file or folder to create.
        report: Not called.

    Returns:
        Path and epoch of the model, path of the exported model, and path of the file of class names (None: no names).

    Raises:
        HpcrunError: There is no model, it cannot be exported, or the file of class names exists with other names.
    """
    saved_model = find_saved_model(request["model"], best=request["best"])
    output = Path(request["output"])
    temporary_file = output.with_name(f".{output.name}.part{output.suffix}")
    names_file = (
        output / "assets.extra/labels.txt" if request["format"] == "savedmodel" else output.with_suffix(".labels.txt")
    )
    names_content = "".join(f"{name}\n" for name in saved_model.names).encode()
    if saved_model.names and names_file.exists() and not _has_content(names_file, names_content):
        hint = "the names of the classes are written to this file: give another PATH with -o, or remove it first"
        raise HpcrunError(f"{names_file} exists", hint=hint)
    model = load_model(saved_model.file)
    try:
        _write(model, request["format"], temporary_file)
        temporary_file.rename(output)
    except (OSError, tf.errors.OpError) as error:
        # TensorFlow's message is "FILE; REASON [Op:NAME]"
        reason = error.strerror if isinstance(error, OSError) else error.message.rpartition("; ")[2].partition(" [")[0]
        hint = "free some disk space, or give another PATH with -o"
        raise HpcrunError(f"{output}: {reason or error}", hint=hint) from None
    finally:
        shutil.rmtree(temporary_file) if temporary_file.is_dir() else temporary_file.unlink(missing_ok=True)
    if saved_model.names:
        names_file.parent.mkdir(exist_ok=True)
        names_file.write_bytes(names_content)
    return {
        "model": str(saved_model.file),
        "epoch": saved_model.epoch,
        "output": str(output),
        "labels": str(names_file) if saved_model.names else None,
    }


def _has_content(file: Path, content: bytes) -> bool:
    return file.is_file() and file.read_bytes() == content


def _write(model: keras.Model, format_name: str, file: Path) -> None:
    if format_name == "keras":
        model.save(file)
    elif format_name == "savedmodel":
        model.export(file, format="tf_saved_model", verbose=False)
    else:
        _require_onnx()
        shape = (1, *model.input_shape[1:])
        model.predict(np.zeros(shape, "uint8"), verbose=0)  # Keras cannot export a model that was never called
        model.export(file, format="onnx", verbose=False)


def _require_onnx() -> None:
    try:
        import onnx  # noqa: F401
        import tf2onnx  # noqa: F401
    except ImportError as error:
        raise HpcrunError(
            f"ONNX needs Python packages that are not installed: {error.name}", hint="pip install onnx tf2onnx"
        ) from None


if __name__ == "__main__":
    serve(export_model)
