"""Callback list that waits for the logs of a step only if a callback reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
from keras.src.utils.python_utils import is_default, pythonify_logs  # Keras does not export them

if TYPE_CHECKING:
    from hpcrun.train.types import Logs


class StepCallbackList(keras.callbacks.CallbackList):  # type: ignore[misc]  # keras is untyped
    """Callback list that calls batch hooks in this thread, and omits batches trained before a restart.

    A GPU computes a step while Python prepares the next step. Converting the logs of a step to numbers waits for the
    step's end. So callbacks of hpcrun with the attribute `takes_tensor_logs` get tensors, and convert them only when
    they need numbers.
    """

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Call the hooks, unless the batch was trained before a restart."""
        if batch >= self._model.training_state.skip:
            super().on_train_batch_begin(batch, logs)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Call the hooks, unless the batch was trained before a restart; `takes_tensor_logs` callbacks get tensors."""
        if batch < self._model.training_state.skip:
            return
        numeric_logs = None
        for callback in self.callbacks:
            if getattr(callback, "takes_tensor_logs", False):
                callback.on_train_batch_end(batch, logs)
            elif not (is_default(callback.on_train_batch_end) and is_default(callback.on_batch_end)):
                numeric_logs = to_numbers(logs) if numeric_logs is None else numeric_logs
                callback.on_train_batch_end(batch, numeric_logs)


def to_numbers(logs: Logs) -> dict[str, float]:
    """Convert the logs of a step to numbers, which waits for the end of the step."""
    return dict(pythonify_logs(logs))
