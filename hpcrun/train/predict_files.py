"""Program of ``hpcrun predict``, which predicts the classes of image files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.train.host_program import serve
from hpcrun.train.saved_model import (
    SavedModel,
    count_classes,
    find_saved_model,
    image_shape,
    image_size,
    load_model,
    to_probabilities,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import keras

    from hpcrun.train.types import Data, Json

_BATCH_SIZE = 32


def predict_files(request: Json, report: Callable[[int, int], None]) -> Json:
    """Return the most probable classes of image files.

    Args:
        request: ``model``, ``best``, ``top`` (number of classes), and ``files``.
        report: Called repeatedly with the number of finished images and the number of all images.

    Returns:
        File and epoch of the model; for each image, its predictions (most probable first) or an error message.
    """
    saved_model = find_saved_model(request["model"], best=request["best"])
    model = load_model(saved_model.file)
    count_classes(model)
    files = [Path(file) for file in request["files"]]
    results: list[Json] = []
    for start in range(0, len(files), _BATCH_SIZE):
        report(start, len(files))
        results += _predict_batch(saved_model, model, files[start : start + _BATCH_SIZE], request["top"])
    return {"model": str(saved_model.file), "epoch": saved_model.epoch, "images": results}


def _predict_batch(saved_model: SavedModel, model: keras.Model, files: list[Path], class_count: int) -> list[Json]:
    import numpy as np

    size, channels = image_size(model), image_shape(model)[2]
    images = [_read_image(file, size, channels) for file in files]
    readable_images = [image for image in images if not isinstance(image, str)]
    scores = iter(to_probabilities(model, model.predict_on_batch(np.stack(readable_images))) if readable_images else ())
    return [
        {"error": image}
        if isinstance(image, str)
        else {"predictions": _best_classes(saved_model, next(scores), class_count)}
        for image in images
    ]


def _read_image(file: Path, size: int, channels: int) -> Data:
    """Return an image as uint8 (size, size, channels); an error message if it cannot be read."""
    import tensorflow as tf

    from hpcrun.train.images.augmentation import AUGMENTATIONS
    from hpcrun.train.images.decoding import Decoder

    try:
        content = tf.constant([file.read_bytes()])  # (1,); TensorFlow opens no file whose name is not in UTF-8
        seeds = tf.zeros([1, 2], tf.int32)
        image = Decoder(size, AUGMENTATIONS["none"]).decode_files(content, seeds)[0]  # (size, size, 3)
    except OSError as error:
        return error.strerror or str(error)
    except tf.errors.OpError as error:
        last_line = error.message.strip().splitlines()[-1]
        return re.sub(r"^.*\}\} | \[Op:.*", "", last_line)  # without the place in TensorFlow's graph
    return (tf.image.rgb_to_grayscale(image) if channels == 1 else image).numpy()


def _best_classes(saved_model: SavedModel, scores: Data, class_count: int) -> list[Json]:
    import numpy as np

    best_outputs = np.argsort(-scores, kind="stable")[:class_count]
    return [{"class": saved_model.name(k), "output": int(k), "probability": float(scores[k])} for k in best_outputs]


if __name__ == "__main__":
    serve(predict_files)
