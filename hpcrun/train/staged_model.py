"""Division of a Keras model into pipeline stages, and the optimizers of models with and without stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras

from hpcrun.errors import HpcrunError
from hpcrun.train.gradients.optimizer import distribute_optimizers
from hpcrun.train.pipeline.pipeline import Pipeline
from hpcrun.train.steps import wrap_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.train.gradients.reducer import Reducer


def add_pipeline(
    model: keras.Model,
    stages: int | Sequence[str],
    micro_batches: int | None,
    *,
    schedule: str,
    recompute: bool,
) -> None:
    """Keep this rank's stage of a model, and let the steps of the model be those of the stage. Collective.

    Args:
        model: A Keras model, changed in place.
        stages: As for `hpcrun.train.Model`.
        micro_batches: As for `hpcrun.train.Model`.
        schedule: As for `hpcrun.train.Model`.
        recompute: As for `hpcrun.train.Model`.

    Raises:
        HpcrunError: The model or the number of ranks does not fit the stages, or the model has been wrapped already.
    """
    if hasattr(model, "training_state"):
        raise HpcrunError(
            f"the model {model.name!r} is in an hpcrun.train.Model already, with other stages",
            hint="make one hpcrun.train.Model(model, stages=...) of a model, before anything trains it",
        )
    pipeline = Pipeline(model, stages, micro_batches, schedule=schedule, recompute=recompute)
    wrap_steps(model)
    training_state = model.training_state
    training_state.pipeline = pipeline
    # The loss metric counts samples on the last stage only, and rank 0 shows their number.
    training_state.samples_seen = keras.Variable(0.0, dtype="float32", trainable=False, name="seen")
    pipeline.steps.samples_seen = training_state.samples_seen


def prepare_optimizers(model: keras.Model) -> list[Reducer]:
    """Let the optimizers of a model average gradients over the ranks that have the same weights.

    Returns:
        The reducer of each optimizer.
    """
    pipeline = model.training_state.pipeline
    return pipeline.compile() if pipeline else distribute_optimizers(model)
