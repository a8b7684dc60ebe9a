"""A Keras model that trains on all ranks at once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf

from hpcrun.errors import HpcrunError
from hpcrun.train.batches import Part, dataset, deal, weigh_classes
from hpcrun.train.callbacks import in_step
from hpcrun.train.optimizer import Optimizer, reducer_of
from hpcrun.train.report import Report
from hpcrun.train.state import build, check_metrics
from hpcrun.train.steps import attach
from hpcrun.train.world import world

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpcrun.train.kinds import Data, Keras


class Model:
    """A Keras model whose `fit`, `evaluate` and `predict` share the work between all ranks.

    Everything else passes through to the Keras model, which keeps its class and its optimizer's: what is saved loads as
    plain Keras. All ranks run the same script; `batch_size`, or the batches of a `tf.data.Dataset`, are global.
    The weights equal those of one process on the whole batch up to float rounding, where the loss is a mean over
    samples. Batch normalization sees its rank's part only; masked losses and activity regularizers count by rank.

    Args:
        keras_model: Any Keras model, compiled or not.
    """

    def __init__(self, keras_model: keras.Model) -> None:
        object.__setattr__(self, "keras_model", keras_model)
        world()
        attach(keras_model)
        if keras_model.compiled:
            self._distribute()

    keras_model: keras.Model

    def __getattr__(self, name: str) -> Keras:
        if name == "keras_model":  # copy and pickle ask before __init__ has run
            raise AttributeError(name)
        return getattr(self.keras_model, name)

    def __setattr__(self, name: str, value: Keras) -> None:
        setattr(self.keras_model, name, value)

    def __call__(self, *args: Keras, **kwargs: Keras) -> Keras:
        """Call the Keras model."""
        return self.keras_model(*args, **kwargs)

    def compile(self, *args: Keras, **kwargs: Keras) -> None:
        """Compile as `keras.Model.compile` does, and let the optimizer average gradients over the ranks.

        Raises:
            HpcrunError: A loss that is no mean over samples, or `jit_compile=True`; with more than one rank only.
        """
        if world().size > 1:
            if kwargs.get("jit_compile") is True:
                raise HpcrunError("jit_compile=True cannot compile the reduction over ranks", hint="leave it out")
            kwargs["jit_compile"] = False
        self.keras_model.compile(*args, **kwargs)
        self._distribute()

    def fit(  # noqa: PLR0917  (Keras's signature)
        self,
        x: Data = None,
        y: Data = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: str | int = "auto",
        callbacks: Keras = None,
        validation_split: float = 0.0,
        validation_data: Data = None,
        shuffle: bool = True,
        class_weight: Mapping[int, float] | None = None,
        sample_weight: Data = None,
        **rest: Keras,
    ) -> keras.callbacks.History:
        """Train as `keras.Model.fit` does; every rank must call it with the same arguments.

        Args:
            x: Arrays of (samples, ...), or a `tf.data.Dataset` batched with the global batch size.
            y: Targets, with arrays.
            batch_size: The global batch size, with arrays (32).
            epochs: As in Keras.
            verbose: "auto" prints a line an epoch for a log file; 1 and 2 are Keras's own; rank 0 alone prints.
            callbacks: As in Keras; those that write files run on rank 0.
            validation_split: As in Keras, with arrays.
            validation_data: (x, y) or (x, y, sample_weight), or a batched dataset.
            shuffle: Whether arrays are shuffled every epoch, in one order on all ranks.
            class_weight: As in Keras.
            sample_weight: With arrays, (samples,).
            **rest: Keras's other arguments.

        Returns:
            Keras's history, equal on all ranks, with `images_per_second` besides.

        Raises:
            HpcrunError: Data of a kind that cannot be dealt to the ranks.
        """
        if validation_split and validation_data is None:
            (x, y, sample_weight), validation_data = _split((x, y, sample_weight), validation_split)
        training = _parts(x, y, sample_weight, batch_size, shuffle=shuffle)
        if training is None:  # one rank, and something that only Keras knows how to read
            data = {"x": x, "y": y, "sample_weight": sample_weight, "batch_size": batch_size, "shuffle": shuffle}
            data |= {"validation_data": validation_data, "class_weight": class_weight}
        else:
            build(self.keras_model, training.element_spec.data)
            data = {"x": weigh_classes(training, class_weight) if class_weight else training, "shuffle": False}
            if validation_data is not None:
                size = rest.pop("validation_batch_size", None) or batch_size
                x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(validation_data)
                validation = _parts(x, y, sample_weight, size)
                data["validation_data"] = validation_data if validation is None else validation
        check_metrics(self.keras_model)
        callbacks = [Report(show=verbose == "auto" and world().rank == 0), *in_step(callbacks)]
        return self.keras_model.fit(**data, epochs=epochs, verbose=_keras_verbose(verbose), callbacks=callbacks, **rest)

    def evaluate(
        self,
        x: Data = None,
        y: Data = None,
        batch_size: int | None = None,
        verbose: str | int = "auto",
        sample_weight: Data = None,
        **rest: Keras,
    ) -> Keras:
        """Evaluate as `keras.Model.evaluate` does, each rank its part; every rank gets the result for all samples.

        Args:
            x: Arrays of (samples, ...), or a batched `tf.data.Dataset`.
            y: Targets, with arrays.
            batch_size: The global batch size, with arrays (32).
            verbose: 1 and 2 as in Keras, on rank 0; "auto" prints nothing.
            sample_weight: With arrays, (samples,).
            **rest: Keras's other arguments.

        Returns:
            The loss, or a list of loss and metrics, or a dict where `return_dict=True`.

        Raises:
            HpcrunError: Data of a kind that cannot be dealt to the ranks.
        """
        parts = _parts(x, y, sample_weight, batch_size)
        if parts is None:
            data = {"x": x, "y": y, "batch_size": batch_size, "sample_weight": sample_weight}
        else:
            build(self.keras_model, parts.element_spec.data)
            data = {"x": parts}
        check_metrics(self.keras_model)
        callbacks = in_step(rest.pop("callbacks", None))
        return self.keras_model.evaluate(**data, verbose=_keras_verbose(verbose), callbacks=callbacks, **rest)

    def predict(self, x: Data, batch_size: int | None = None, verbose: str | int = "auto", **rest: Keras) -> Data:
        """Predict as `keras.Model.predict` does; every rank must call it, and gets all predictions in order.

        Arrays are shared between the ranks. A `tf.data.Dataset` is predicted whole on every rank: its length is not
        known beforehand, and predictions of unknown sizes would have to be put back in order.

        Args:
            x: Arrays of (samples, ...), or a batched `tf.data.Dataset`.
            batch_size: Samples a step on this rank, with arrays (32).
            verbose: 1 and 2 as in Keras, on rank 0; "auto" prints nothing.
            **rest: Keras's other arguments.

        Returns:
            Arrays of (samples, ...), structured as the model's outputs.

        Raises:
            HpcrunError: `x` is an `hpcrun.train.dataset`, which holds a part of the samples.
        """
        me, how = world(), {"batch_size": batch_size, "verbose": _keras_verbose(verbose), **rest}
        if isinstance(x, tf.data.Dataset) and isinstance(x.element_spec, Part):
            raise HpcrunError(
                "predict got an hpcrun.train.dataset, which holds this rank's samples only",
                hint="give predict the arrays, or a batched tf.data.Dataset",
            )
        if me.size == 1 or not _arrays(x):
            return self.keras_model.predict(x, **how)
        samples = len(keras.tree.flatten(x)[0])
        start, stop = (samples * r // me.size for r in (me.rank, me.rank + 1))
        first = min(start, samples - 1)  # Keras cannot predict nothing: a rank without samples drops one
        mine = self.keras_model.predict(keras.tree.map_structure(lambda a: a[first : max(stop, first + 1)], x), **how)
        everybody = me.comm.allgather(keras.tree.map_structure(lambda a: a[: stop - start], mine))
        return keras.tree.map_structure(lambda *parts: np.concatenate(parts), *everybody)

    def save(self, *args: Keras, **kwargs: Keras) -> None:
        """Save as `keras.Model.save` does, on rank 0; others return at once (`barrier()` before they read it)."""
        if world().rank == 0:
            self.keras_model.save(*args, **kwargs)

    def save_weights(self, *args: Keras, **kwargs: Keras) -> None:
        """Save as `keras.Model.save_weights` does, on rank 0; others return at once."""
        if world().rank == 0:
            self.keras_model.save_weights(*args, **kwargs)

    def summary(self, *args: Keras, **kwargs: Keras) -> None:
        """Print the summary, on rank 0."""
        if world().rank == 0:
            self.keras_model.summary(*args, **kwargs)

    def _distribute(self) -> None:
        model = self.keras_model
        if world().size > 1:
            for loss in keras.tree.flatten(model.loss):
                reduction = getattr(loss, "reduction", "sum_over_batch_size")
                if reduction not in {"sum_over_batch_size", "mean"}:
                    raise HpcrunError(
                        f"the loss {loss.name!r} has reduction={reduction!r}, which is no mean over samples",
                        hint='use reduction="sum_over_batch_size" (Keras\'s default)',
                    )
        if model.optimizer is not None and not reducer_of(model.optimizer):
            Optimizer(model.optimizer)


def _parts(
    x: Data, y: Data, sample_weight: Data, batch_size: int | None, *, shuffle: bool = False
) -> tf.data.Dataset | None:
    """Return a dataset of this rank's parts, or None where one rank may leave the data to Keras."""
    if isinstance(x, tf.data.Dataset):
        if batch_size is not None:
            raise HpcrunError("batch_size goes with arrays", hint="batch the tf.data.Dataset itself, globally")
        return deal(x)
    if x is not None and _arrays((x, y, sample_weight)):
        return dataset(x, y, sample_weight, batch_size=batch_size or 32, shuffle=bool(shuffle))
    if world().size == 1:
        return None
    raise HpcrunError(
        f"hpcrun.train cannot deal a {type(x).__name__} to {world().size} ranks",
        hint="give NumPy arrays, or a tf.data.Dataset batched with the global batch size "
        "(tf.data.Dataset.from_generator(...).batch(B) for a generator)",
    )


def _arrays(data: Data) -> bool:
    leaves = [leaf for leaf in keras.tree.flatten(data) if leaf is not None]
    return all(hasattr(leaf, "shape") and hasattr(leaf, "__array__") for leaf in leaves)


def _split(data: Data, fraction: float) -> Data:
    if not _arrays(data):
        raise HpcrunError("validation_split needs arrays", hint="give validation_data instead")
    cut = math.floor(len(keras.tree.flatten(data[0])[0]) * (1 - fraction))
    return tuple(
        keras.tree.map_structure(lambda a, part=part: None if a is None else a[part], data)
        for part in (slice(None, cut), slice(cut, None))
    )


def _keras_verbose(verbose: str | int) -> str | int:
    return 0 if verbose == "auto" or world().rank > 0 else verbose
