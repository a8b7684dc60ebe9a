"""Calls the callbacks of a `fit` after each step, without waiting for the step's logs where nobody reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
from keras.src.utils.python_utils import is_default, pythonify_logs  # there are no public functions

if TYPE_CHECKING:
    from hpcrun.train.types import Logs


class StepCallbackList(keras.callbacks.CallbackList):  # type: ignore[misc]  # keras is untyped
    """Callback list that calls hooks of batches in this thread, not those done before an interruption.

    A GPU computes a step while Python prepares the next one. A callback that reads a step's logs ends that, as they are
    numbers only when the step has ended. So hpcrun's own callbacks that say `reads_logs_late` get the logs as the step
    returned them: tensors, which they convert when they need a number.
    """

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Pass on what is not repeated."""
        if batch >= self._model.training_state.skip:
            super().on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Pass on what is not repeated; numbers for callbacks that read logs, tensors for those that read them late."""
        if batch < self._model.training_state.skip:
            return
        numbers = None
        for callback in self.callbacks:
            if getattr(callback, "reads_logs_late", False):
                callback.on_train_batch_end(batch, logs)
            elif not (is_default(callback.on_train_batch_end) and is_default(callback.on_batch_end)):
                numbers = to_numbers(logs) if numbers is None else numbers
                callback.on_train_batch_end(batch, numbers)


def to_numbers(logs: Logs) -> dict[str, float]:
    """Return the logs of a step as numbers; waits until the step has ended."""
    return dict(pythonify_logs(logs))
