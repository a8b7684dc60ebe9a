"""Checks for models that cannot be trained on shards of batches, or would give different results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras

from hpcrun.errors import HpcrunError
from hpcrun.run.job import print_line
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from hpcrun.train.types import Keras

_LOSSES_OF_WHOLE_BATCH = {"circle", "dice", "tversky"}


def check_is_model(model: object, function: str = "hpcrun.train.Model") -> None:
    """Raise an error for objects that are not Keras models.

    Args:
        model: The argument of a function.
        function: The name of the function.

    Raises:
        HpcrunError: The object is, for example, a layer, a class, or a model of the package tf_keras.
    """
    if not isinstance(model, keras.Model):
        cls = model if isinstance(model, type) else type(model)
        raise HpcrunError(
            f"{function} got {cls.__module__}.{cls.__qualname__}, which is not a model of Keras 3",
            hint=f"give a keras.Model: {function}(keras.Sequential([...])), not of tf_keras",
        )


def refuse_undistributed_fit(model: keras.Model) -> None:
    """Let `fit` of a wrapped Keras model raise an error; `hpcrun.train.Model` calls `fit_shards` instead.

    With several ranks, `fit` of the Keras model would train on all data on each rank, from different initial weights.

    Args:
        model: The wrapped Keras model, changed in place.
    """
    fit = model.fit

    def checked_fit(*args: Keras, **kwargs: Keras) -> Keras:
        if world().size > 1:
            raise HpcrunError(
                "fit was called on the Keras model, not on its hpcrun.train.Model: every rank would train on all data",
                hint="call both compile and fit on the wrapper: model = hpcrun.train.Model(model); model.compile(...); "
                "model.fit(...)",
            )
        return fit(*args, **kwargs)

    model.fit, model.fit_shards = checked_fit, fit


def check_compiled(model: keras.Model) -> None:
    """Raise an error if a model is not compiled.

    Raises:
        HpcrunError: The model is not compiled.
    """
    if not model.compiled:
        raise HpcrunError("the model is not compiled", hint="call compile() before fit and evaluate")


def check_losses(model: keras.Model) -> None:
    """Raise an error for unreduced losses, and print which losses compare samples of a shard only.

    Args:
        model: A compiled model.

    Raises:
        HpcrunError: A loss has `reduction="none"`.
    """
    for loss in keras.tree.flatten(model.loss):
        if getattr(loss, "reduction", "sum") in {None, "none"}:
            raise HpcrunError(
                f"the loss {loss.name!r} has reduction={loss.reduction!r}: it returns one number per sample",
                hint='use reduction="sum_over_batch_size" (Keras\'s default) or "sum"',
            )
        name = loss if isinstance(loss, str) else getattr(loss, "name", "")
        if name in _LOSSES_OF_WHOLE_BATCH and getattr(loss, "axis", None) is None and world().rank == 0:
            print_line(f"INFO: the loss {name} compares the samples of a batch: ranks compare only those of a shard")


def check_layers(model: keras.Model) -> None:
    """Raise an error for layers with a state per position in the batch.

    Raises:
        HpcrunError: A layer is a stateful RNN.
    """
    for layer in model._flatten_layers(include_self=False):  # noqa: SLF001
        if getattr(layer, "stateful", False) is True:
            raise HpcrunError(
                f"{layer.name} is stateful: it has a state per position in the batch, and ranks get shards of batches",
                hint="build it without stateful=True, or train with one rank",
            )


def check_metrics(model: keras.Model) -> None:
    """Raise an error for metrics whose state cannot be summed over ranks.

    The states of Keras's metrics, and of subclasses of `keras.metrics.Mean` or `Sum` that add no variables, are sums
    over samples.

    Args:
        model: A compiled model whose metrics are built.

    Raises:
        HpcrunError: A user's metric does not declare that its variables are sums over samples.
    """
    if world().size == 1:
        return
    for metric in model.metrics:
        for leaf in getattr(metric, "metrics", [metric]):
            metric_class = next(c for c in type(leaf).__mro__ if "update_state" in vars(c))
            is_mean_or_sum = isinstance(leaf, keras.metrics.Mean | keras.metrics.Sum) and len(leaf.variables) <= 2
            if not (metric_class.__module__.startswith("keras.") or is_mean_or_sum or getattr(leaf, "additive", False)):
                raise HpcrunError(
                    f"the metric {leaf.name!r} is a {metric_class.__name__}, whose state may not add up over ranks",
                    hint=f"set `additive = True` in class {metric_class.__name__} if its variables are sums over "
                    "samples, or derive it from keras.metrics.Mean",
                )
