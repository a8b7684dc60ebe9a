"""The callbacks of one `fit` of a model on all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

from hpcrun.train.callback_list import StepCallbackList
from hpcrun.train.callbacks import callbacks_on_this_rank
from hpcrun.train.epoch_log import EpochLogger
from hpcrun.train.ranks.world import world
from hpcrun.train.training_progress import ProgressCallback

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.train.callbacks import Callback
    from hpcrun.train.checkpoint import Checkpoint


def create_fit_callbacks(
    model: keras.Model,
    user_callbacks: Sequence[Callback],
    checkpoint: Checkpoint | None,
    *,
    verbose: str | int,
    epochs: int,
    steps: int | None,
) -> StepCallbackList:
    """Return hpcrun's callbacks and the user's callbacks that run on this rank, in the order of their hooks.

    Args:
        model: The Keras model to train.
        user_callbacks: The user's callbacks of all ranks.
        checkpoint: The checkpoint that the training writes; None without one.
        verbose: The argument of `hpcrun.train.Model.fit`.
        epochs: Number of the last epoch, from 1.
        steps: Number of steps per epoch; None if unknown.
    """
    fit, seconds_before = (checkpoint.number, checkpoint.position.seconds) if checkpoint else (0, 0.0)
    epoch_logger = EpochLogger(show=verbose == "auto" and world().rank == 0, fit=fit, seconds_before=seconds_before)
    callbacks: list[Any] = [ProgressCallback(fit), epoch_logger, *callbacks_on_this_rank(user_callbacks)]
    if checkpoint:
        callbacks += [keras.callbacks.History(), checkpoint]  # the checkpoint includes the history of the epoch
    shown_parameters = {"verbose": keras_verbose(verbose), "epochs": epochs, "steps": steps}
    has_progress_bar = keras_verbose(verbose) != 0
    return StepCallbackList(callbacks, add_history=True, add_progbar=has_progress_bar, model=model, **shown_parameters)


def keras_verbose(verbose: str | int) -> str | int:
    """Return the value of `verbose` for Keras: 0 on all ranks but rank 0, and for "auto"."""
    return 0 if verbose == "auto" or world().rank > 0 else verbose
