"""Progress and speed of a `fit`, as part of each rank's heartbeat."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras

from hpcrun.run.heartbeat_thread import set_details
from hpcrun.run.progress import Progress
from hpcrun.train.callback_list import to_numbers
from hpcrun.train.model_build import is_custom_step
from hpcrun.train.ranks.world import world
from hpcrun.train.result import gradient_traffic

if TYPE_CHECKING:
    from hpcrun.train.types import Json, Logs


class ProgressCallback(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Callback that records values for the heartbeat thread; it takes a microsecond per step.

    Args:
        fit: Number of the `fit` in the script, from 0.
    """

    takes_tensor_logs = True

    def __init__(self, fit: int = 0) -> None:
        super().__init__()
        self.progress = Progress(fit, to_numbers)

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Register with the heartbeat."""
        self.progress.epochs, self.progress.steps = self.params.get("epochs"), self.params.get("steps")
        self.progress.start()
        set_details(self.heartbeat_details)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Record the epoch."""
        # the number of steps of a generator is known after its first epoch
        self.progress.steps = self.params.get("steps")
        self.progress.start_epoch(epoch + 1)
        if (samples_seen := self._model.training_state.samples_seen) is not None:
            samples_seen.assign(0)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Count the step."""
        if self.progress.end_step(batch + 1, logs or {}) and world().rank == 0:
            # JAX's metric state cannot be read during the epoch
            if not self.progress.batch_size and keras.backend.backend() != "jax":
                self.progress.batch_size = samples_trained(self._model, in_epoch=True) / (batch + 1)
            self.progress.add_point()

    def on_test_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Count samples before validation, which resets the count."""
        self._count()
        self.progress.phase = "validation"

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Count samples if no validation has counted them."""
        if self.progress.phase == "training":
            self._count()

    def on_train_end(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Record the end of training."""
        self.progress.phase = "trained"
        reducers, sent_bytes = self._model.training_state.reducers, self._sent_bytes()
        if sent_bytes or any(reducer.codec_reason for reducer in reducers):
            gradient_traffic["codec"] = self._codec()
            gradient_traffic["sent_mb_per_step"] = round(sent_bytes / 1e6, 4)
        if reason := "; ".join(filter(None, (reducer.codec_reason for reducer in reducers))):
            gradient_traffic["codec_reason"] = reason

    def heartbeat_details(self) -> Json:
        """Return the heartbeat's values for the `fit`, with the logs of this rank."""
        details = self.progress.details(is_chief=world().rank == 0)
        return {**details, "sent_bytes": self._sent_bytes(), "codec": self._codec()}

    def _codec(self) -> str:
        return ", ".join(dict.fromkeys(reducer.codec for reducer in self._model.training_state.reducers))

    def _sent_bytes(self) -> float:
        """Return how many bytes of gradients this rank has sent per step; 0 if none, as in shared memory."""
        reducers = self._model.training_state.reducers
        return float(sum(reducer.sent_bytes_per_step() for reducer in reducers))

    def _count(self) -> None:
        """Compute the global batch size; at the end of an epoch, the count covers all ranks on every backend."""
        if self.progress.step:
            self.progress.batch_size = samples_trained(self.model) / self.progress.step or self.progress.batch_size


def samples_trained(model: keras.Model, *, in_epoch: bool = False) -> float:
    """Return the number of samples of all ranks in this epoch; 0 if unknown.

    Args:
        model: A compiled model.
        in_epoch: Whether the epoch is running, so that metrics cover only this rank.
    """
    training_state = model.training_state
    if training_state.samples_seen is not None:  # include the batches before a restart, as the loss does
        resumed_factor: float = training_state.batch / max(1, training_state.batch - training_state.skip)
        return float(training_state.samples_seen) * resumed_factor
    if is_custom_step(model, "train_step"):  # the loss metric of a custom step may count batches instead of samples
        return 0.0
    loss = next((m for m in model.metrics if m.name == "loss" and hasattr(m, "count")), None)
    return float(loss.count) * (world().size if in_epoch else 1) if loss else 0.0
