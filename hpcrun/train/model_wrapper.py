"""Wrapper of a Keras model: what it does besides `fit`, `evaluate` and `predict`."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.train.model_build import build_for_batch
from hpcrun.train.ranks.replicas import Replica
from hpcrun.train.ranks.world import world
from hpcrun.train.state import broadcast, broadcast_once

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    import keras

    from hpcrun.train.pipeline.plan import Plan
    from hpcrun.train.types import Data, Keras


class ModelWrapper:
    """Wrapper of a Keras model that loads, saves and prints on rank 0 only; other attributes are the Keras model's.

    Args:
        keras_model: The Keras model to wrap.
    """

    keras_model: keras.Model

    def __init__(self, keras_model: keras.Model) -> None:
        object.__setattr__(self, "keras_model", keras_model)
        object.__setattr__(self, "from_config", keras_model.from_config)

    @classmethod
    def from_config(cls, config: Keras, **_: Keras) -> NoReturn:
        """Refuse `keras.models.clone_model`, which calls this method.

        Raises:
            HpcrunError: Always.
        """
        raise HpcrunError(
            f"Keras cannot copy an hpcrun.train.Model, which wraps the Keras model {config.get('name', '')!r}",
            hint="copy the Keras model: hpcrun.train.Model(keras.models.clone_model(model.keras_model))",
        )

    def __deepcopy__(self, _: dict[int, Keras]) -> NoReturn:
        """Refuse `copy.deepcopy`, which would copy the model without its training state.

        Raises:
            HpcrunError: Always.
        """
        type(self).from_config({"name": self.keras_model.name})

    def __getattr__(self, name: str) -> Keras:
        if name == "keras_model":  # copy and pickle read this attribute before __init__ has run
            raise AttributeError(name)
        return getattr(self.keras_model, name)

    def __setattr__(self, name: str, value: Keras) -> None:
        setattr(self.keras_model, name, value)

    def __call__(self, *args: Keras, **kwargs: Keras) -> Keras:
        """Call the Keras model."""
        return self.keras_model(*args, **kwargs)

    def train_on_batch(
        self, x: Data, y: Data = None, sample_weight: Data = None, *args: Keras, **kwargs: Keras
    ) -> Keras:
        """Train on one batch per replica, as `keras.Model.train_on_batch` does; all have the same weight."""
        broadcast_once(self.keras_model)
        build_for_batch(self.keras_model, x, y, sample_weight)
        return self.keras_model.train_on_batch(x, y, sample_weight, *args, **kwargs)

    def test_on_batch(
        self, x: Data, y: Data = None, sample_weight: Data = None, *args: Keras, **kwargs: Keras
    ) -> Keras:
        """Evaluate one batch on this replica, as `keras.Model.test_on_batch` does."""
        broadcast_once(self.keras_model)
        build_for_batch(self.keras_model, x, y, sample_weight)
        return self.keras_model.test_on_batch(x, y, sample_weight, *args, **kwargs)

    def plan(self, batch_size: int | None = None) -> Plan:
        """Measure the pipeline stages, and return their plan, as text by `str`. Collective.

        Args:
            batch_size: The global batch size (default: 4 samples in each micro-batch).

        Raises:
            HpcrunError: The model has no stages.
        """
        pipeline = self.keras_model.training_state.pipeline
        if not pipeline:
            raise HpcrunError(
                "the model has no stages", hint="hpcrun.train.Model(model, stages=4), or hpcrun.train.plan(model, 4)"
            )
        pipeline_plan: Plan = pipeline.plan(batch_size)
        return pipeline_plan

    @property
    def _replica(self) -> Replica:
        """This rank's replica of the model."""
        pipeline = self.keras_model.training_state.pipeline
        return pipeline.layout.replica if pipeline else Replica(world().rank, world().size)

    def load_weights(self, *args: Keras, **kwargs: Keras) -> None:
        """Load weights as `keras.Model.load_weights` does, on rank 0, and broadcast them. Collective."""
        self._change_on_rank_0(lambda: self.keras_model.load_weights(*args, **kwargs))

    def set_weights(self, weights: Data) -> None:
        """Set the weights on all ranks to the argument of rank 0, as `keras.Model.set_weights` does. Collective."""
        self._change_on_rank_0(lambda: self.keras_model.set_weights(weights))

    def _change_on_rank_0(self, change: Callable[[], None]) -> None:
        error = None
        pipeline = self.keras_model.training_state.pipeline
        if world().rank == 0:
            try:
                with pipeline.service.writing() if pipeline else nullcontext():
                    change()
            except Exception as exception:
                if world().size == 1:
                    raise
                error = exception
        if world().size > 1:
            if error := world().comm.bcast(error):
                raise error
            broadcast(self.keras_model)

    def save(self, *args: Keras, **kwargs: Keras) -> None:
        """Save the model as `keras.Model.save` does, on rank 0; call `barrier()` before other ranks read the file."""
        if world().rank == 0:
            self.keras_model.save(*args, **kwargs)

    def save_weights(self, *args: Keras, **kwargs: Keras) -> None:
        """Save weights as `keras.Model.save_weights` does, on rank 0; other ranks return at once."""
        if world().rank == 0:
            self.keras_model.save_weights(*args, **kwargs)

    def export(self, *args: Keras, **kwargs: Keras) -> None:
        """Export the model as `keras.Model.export` does, on rank 0; other ranks return at once.

        Raises:
            HpcrunError: The model has pipeline stages.
        """
        if self.keras_model.training_state.pipeline:
            raise HpcrunError(
                "export needs the whole model on one rank, and this one has pipeline stages",
                hint="save it, and export it in one process: keras.models.load_model(file).export(folder)",
            )
        if world().rank == 0:
            self.keras_model.export(*args, **kwargs)

    def summary(self, *args: Keras, **kwargs: Keras) -> None:
        """Print the summary of the model, on rank 0."""
        if world().rank == 0:
            self.keras_model.summary(*args, **kwargs)
