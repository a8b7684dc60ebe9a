"""Precision @ 1 and recall @ 5 of a classifier over all samples of a data set, each counted exactly once."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

import keras
import numpy as np
from keras import ops

from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen
from hpcrun.run.job import print_line, run_dir
from hpcrun.run.metrics import append_epoch
from hpcrun.train.data.batch_map import map_batches
from hpcrun.train.model import Model
from hpcrun.train.ranks.world import world
from hpcrun.train.saved_model import SavedModel, count_classes, ends_in_softmax, image_shape, image_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    import tensorflow as tf

    from hpcrun.train.images.image_set import ImageSet
    from hpcrun.train.types import Data


def is_in_top_k(y_true: Data, y_pred: Data, k: int) -> Data:
    """Return for each sample whether its class has one of the k highest scores, as 0 or 1 in float64.

    If scores are equal, classes with smaller numbers come first, as in `numpy.argmax`: equal scores for all classes do
    not count as correct. A sample with a score that is not finite counts as misclassified.

    Args:
        y_true: Classes from 0, shape (samples,) or (samples, 1).
        y_pred: Scores, shape (samples, classes).
        k: Number of highest scores.
    """
    labels = ops.cast(ops.reshape(y_true, (-1, 1)), "int32")  # (samples, 1)
    classes = ops.arange(y_pred.shape[-1], dtype="int32")  # (classes,)
    score = ops.max(ops.where(classes == labels, y_pred, -np.inf), axis=-1, keepdims=True)  # (samples, 1)
    ranks_higher = ops.logical_or(
        y_pred > score, ops.logical_and(y_pred == score, classes < labels)
    )  # (samples, classes)
    position_in_order = ops.sum(ops.cast(ranks_higher, "int32"), axis=-1)  # (samples,), from 0
    is_finite = ops.all(ops.isfinite(y_pred), axis=-1)
    is_correct = ops.cast(ops.logical_and(position_in_order < k, is_finite), "float64")
    # set the tensor's number of axes, which Keras loses if only labels have a static size
    return ops.reshape(is_correct, (-1,))


def top_k(k: int, name: str) -> keras.metrics.Metric:
    """Return the metric `is_in_top_k`, for `compile(weighted_metrics=...)`.

    The metric counts in float64, which is exact. `keras.metrics.SparseTopKCategoricalAccuracy` counts in float32, and
    counts ties as correct.

    Args:
        k: Number of highest scores.
        name: Name of the metric.
    """
    return keras.metrics.MeanMetricWrapper(is_in_top_k, name=name, dtype="float64", k=k)


@frozen
class Evaluation:
    """The result of an evaluation.

    Attributes:
        precision_at_1: Fraction of samples whose class has the highest score.
        recall_at_5: Fraction of samples whose class has one of the 5 highest scores.
        loss: Mean cross-entropy.
        examples: Number of samples.
    """

    precision_at_1: float
    recall_at_5: float
    loss: float
    examples: int

    def __str__(self) -> str:
        """Return the result in the format of Inception's evaluation script."""
        return (
            f"{datetime.now():%Y-%m-%d %H:%M:%S}: precision @ 1 = {self.precision_at_1:.4f} "  # noqa: DTZ005  (local time)
            f"recall @ 5 = {self.recall_at_5:.4f} [{self.examples} examples]"
        )


class Evaluator:
    """An evaluator of a classifier; calls are collective, and return equal results on all ranks.

    Args:
        keras_model: A model whose outputs are scores (samples, classes); compiled by this class.
    """

    def __init__(self, keras_model: keras.Model) -> None:
        self.model = Model(keras_model)
        self.metrics = [top_k(1, "precision_at_1"), top_k(5, "recall_at_5")]
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=not ends_in_softmax(keras_model))
        self.model.compile(loss=loss, weighted_metrics=self.metrics)

    def evaluate(self, batches: Data) -> Evaluation:
        """Evaluate all samples.

        Args:
            batches: Batches of images and classes from 0, for example from `images.read_split`. Samples of weight 0 are
                not counted.

        Raises:
            HpcrunError: See `hpcrun.train.Model.evaluate`.
        """
        loss = float(self.model.evaluate(batches, return_dict=True)["loss"])
        hits = [(float(metric.total), float(metric.count)) for metric in self.metrics]
        precision, recall = (total / count if count else 0.0 for total, count in hits)
        return Evaluation(precision, recall, loss, round(hits[0][1]))


def make_batches(images: ImageSet, batch_size: int, model: keras.Model) -> tf.data.Dataset:
    """Return this rank's shards of batches of images, with the size and the channels that a model takes. Collective.

    Args:
        images: The images.
        batch_size: The global batch size, over all ranks.
        model: A model of square images in colour, or grey.

    Raises:
        HpcrunError: The model takes other inputs.
    """
    batches = images.batches(batch_size, image_size(model))
    return map_batches(batches, _remove_colours) if image_shape(model)[2] == 1 else batches


def _remove_colours(x: Data, y: Data) -> tuple[Data, Data]:
    """Return images with one channel, (b, size, size, 1), and their classes."""
    import tensorflow as tf

    return tf.image.rgb_to_grayscale(x), y


def require_classes(model: keras.Model, saved_model: SavedModel, names: Sequence[str]) -> None:
    """Check that a model and a data set have the same classes.

    Args:
        model: The model.
        saved_model: The saved model, with its class names if known.
        names: Class names of the data set, or numbers from 1 if the classes have no names.

    Raises:
        HpcrunError: The classes differ.
    """
    classes, label_numbers = count_classes(model), [str(k + 1) for k in range(len(names))]
    if saved_model.names and list(names) not in ([*saved_model.names], label_numbers):
        pairs = [pair for pair in zip(saved_model.names, names, strict=False) if pair[0] != pair[1]]
        first_difference = (
            f"first {pairs[0][0]!r} and {pairs[0][1]!r}" if pairs else f"{len(saved_model.names)} and {len(names)}"
        )
        raise HpcrunError(
            f"the classes of the model and of the data set differ: {first_difference}",
            hint="evaluate on the data set of the training, or on one built with hpcrun data build --labels LABELS.TXT",
        )
    if len(names) > classes:
        raise HpcrunError(f"the data set has {len(names)} classes, but the model {classes}")


def record_evaluation(evaluation: Evaluation, saved_model: SavedModel, seconds: float) -> None:
    """Print the result of an evaluation, and append it to ``metrics.jsonl``, on rank 0.

    Args:
        evaluation: The result of the evaluation.
        saved_model: The evaluated model.
        seconds: Duration of the evaluation in seconds, including loading.
    """
    if world().rank > 0:
        return
    epoch = f" of epoch {saved_model.epoch}" if saved_model.epoch else ""
    print_line(f"loaded {saved_model.file.name}{epoch}")
    print_line(str(evaluation))
    if (folder := run_dir()) and saved_model.epoch:
        rate = {"images_per_second": evaluation.examples / seconds, "seconds": round(seconds, 3)}
        append_epoch(folder, {"epoch": saved_model.epoch, **asdict(evaluation), **rate})
