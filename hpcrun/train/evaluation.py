"""Precision @ 1 and recall @ 5 of a classifier, over exactly all samples of a data set, on any number of ranks."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import keras
import numpy as np
from keras import ops

from hpcrun import permissions
from hpcrun.errors import HpcrunError
from hpcrun.train.model import Model
from hpcrun.train.ranks.world import print_line, world
from hpcrun.train.result import run_dir, to_json
from hpcrun.train.saved_model import SavedModel, count_classes, ends_in_softmax

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.train.types import Data


def is_in_top_k(y_true: Data, y_pred: Data, k: int) -> Data:
    """Return whether the class of each sample is one of its k highest scores, as 0 and 1 in float64.

    Of equal scores, the first class is the higher one, as in `numpy.argmax`: a model that gives all classes the same
    score does not count as right. A score that is not finite is wrong.

    Args:
        y_true: Classes from 0, shape (samples,) or (samples, 1).
        y_pred: Scores, shape (samples, classes).
        k: The number of scores.
    """
    labels = ops.cast(ops.reshape(y_true, (-1, 1)), "int32")  # (samples, 1)
    classes = ops.arange(y_pred.shape[-1], dtype="int32")  # (classes,)
    score = ops.max(ops.where(classes == labels, y_pred, -np.inf), axis=-1, keepdims=True)  # (samples, 1)
    higher = ops.logical_or(y_pred > score, ops.logical_and(y_pred == score, classes < labels))  # (samples, classes)
    place = ops.sum(ops.cast(higher, "int32"), axis=-1)  # (samples,), from 0
    finite = ops.all(ops.isfinite(y_pred), axis=-1)
    right = ops.cast(ops.logical_and(place < k, finite), "float64")
    return ops.reshape(right, (-1,))  # Keras loses the rank where labels have a fixed size and scores have not


def top_k(k: int, name: str) -> keras.metrics.Metric:
    """Return the metric `is_in_top_k`, for `compile(weighted_metrics=...)`.

    Its counts are float64, and therefore exact: `keras.metrics.SparseTopKCategoricalAccuracy` counts in float32, and
    takes ties as right.

    Args:
        k: The number of scores.
        name: The name of the metric.
    """
    return keras.metrics.MeanMetricWrapper(is_in_top_k, name=name, dtype="float64", k=k)


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation.

    Attributes:
        precision_at_1: Part of the samples whose class has the highest score.
        recall_at_5: Part of the samples whose class is one of the 5 highest scores.
        loss: The mean cross-entropy.
        examples: The number of samples.
    """

    precision_at_1: float
    recall_at_5: float
    loss: float
    examples: int

    def __str__(self) -> str:
        """Return the line of Inception's evaluation script."""
        return (
            f"{datetime.now():%Y-%m-%d %H:%M:%S}: precision @ 1 = {self.precision_at_1:.4f} "  # noqa: DTZ005  (local time)
            f"recall @ 5 = {self.recall_at_5:.4f} [{self.examples} examples]"
        )


class Evaluator:
    """Evaluates a classifier; all ranks must make the same calls, and get the same results.

    Args:
        keras_model: A model whose outputs are scores (samples, classes). It is compiled anew.
    """

    def __init__(self, keras_model: keras.Model) -> None:
        self.model = Model(keras_model)
        self.metrics = [top_k(1, "precision_at_1"), top_k(5, "recall_at_5")]
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=not ends_in_softmax(keras_model))
        self.model.compile(loss=loss, weighted_metrics=self.metrics)

    def evaluate(self, batches: Data) -> Evaluation:
        """Evaluate all samples.

        Args:
            batches: Batches of images and classes from 0, such as those of `images.read_split`. Samples of weight 0 do
                not count.

        Raises:
            HpcrunError: As `hpcrun.train.Model.evaluate`.
        """
        loss = float(self.model.evaluate(batches, return_dict=True)["loss"])
        hits = [(float(metric.total), float(metric.count)) for metric in self.metrics]
        precision, recall = (total / count if count else 0.0 for total, count in hits)
        return Evaluation(precision, recall, loss, round(hits[0][1]))


def require_classes(model: keras.Model, saved: SavedModel, names: Sequence[str]) -> None:
    """Require that a model has the classes of a data set.

    Args:
        model: The model.
        saved: Where it is from, with the names of its classes if they are known.
        names: The names of the data set's classes, or their numbers from 1 if they have no names.

    Raises:
        HpcrunError: It has others.
    """
    classes, numbers = count_classes(model), [str(k + 1) for k in range(len(names))]
    if saved.names and list(names) not in ([*saved.names], numbers):
        pairs = [pair for pair in zip(saved.names, names, strict=False) if pair[0] != pair[1]]
        first = f"first {pairs[0][0]!r} and {pairs[0][1]!r}" if pairs else f"{len(saved.names)} and {len(names)}"
        raise HpcrunError(
            f"the classes of the model and of the data set differ: {first}",
            hint="evaluate on the data set of the training, or on one built with hpcrun data build --labels LABELS.TXT",
        )
    if len(names) > classes:
        raise HpcrunError(f"the data set has {len(names)} classes, but the model {classes}")


def record_evaluation(evaluation: Evaluation, saved: SavedModel, seconds: float) -> None:
    """Print the line of an evaluation, and append it to ``metrics.jsonl``, on rank 0.

    Args:
        evaluation: The result.
        saved: The model.
        seconds: The duration, with loading.
    """
    if world().rank > 0:
        return
    epoch = f" of epoch {saved.epoch}" if saved.epoch else ""
    print_line(f"loaded {saved.file.name}{epoch}")
    print_line(str(evaluation))
    if (folder := run_dir()) and saved.epoch:
        rate = {"images_per_second": evaluation.examples / seconds, "seconds": round(seconds, 3)}
        entry = to_json({"epoch": saved.epoch, **asdict(evaluation), **rate})
        with open(folder / "metrics.jsonl", "a", encoding="utf-8", opener=permissions.opener) as file:
            file.write(json.dumps(entry) + "\n")
