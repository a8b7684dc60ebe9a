"""The learning rate for many ranks, and a gentle way up to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras

from hpcrun.errors import HpcrunError
from hpcrun.train.ranks.world import print_line, world

if TYPE_CHECKING:
    from hpcrun.train.types import Keras, Logs


class WarmupScaling(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Scales the learning rate with the number of ranks, and warms it up, as Goyal et al. do (arXiv:1706.02677).

    Compile with the rate that suits one rank's part of the batch. It grows linearly, every step, to `factor` times
    that within the first epochs (sections 2.1 and 2.2): step t of `warmup_epochs` times s steps takes
    lr (1 + (factor - 1) t / (warmup_epochs s)). Later the callback leaves it alone, so that `ReduceLROnPlateau` and
    schedules by callback go on from there. Where Keras does not know s beforehand, the first epoch keeps the rate that
    it begins with, and counts the steps. With `steps_per_execution` the rate grows once an execution.

    `fit(initial_epoch=...)` enters at that epoch's rate, where the optimizer is new; beyond the warm-up, an optimizer
    that has taken steps keeps the rate that it has.

    Args:
        warmup_epochs: Epochs to reach the full rate in; 0 starts with it.
        factor: The full rate is `factor` times the optimizer's; default: the number of ranks.
        momentum_correction: With `keras.optimizers.SGD`, whose velocity contains the rate: when the rate goes from a to
            b, scale the velocity by b / a (section 3, equation 10). Other optimizers, and momentum 0, need none.
        verbose: Whether rank 0 says when the warm-up begins and ends.
        learning_rate: The rate that `factor` multiplies; default: the one that the optimizer has when the callback
            first meets it. An optimizer that has taken steps (a loaded one, say) may have a scaled rate already: it
            needs this argument.

    Raises:
        HpcrunError: A negative argument; when training begins, an optimizer whose rate is no single number.
    """

    def __init__(
        self,
        warmup_epochs: float = 5,
        factor: float | None = None,
        momentum_correction: bool = True,
        verbose: bool = True,
        learning_rate: float | None = None,
    ) -> None:
        super().__init__()
        given = {"warmup_epochs": warmup_epochs, "factor": factor, "learning_rate": learning_rate}
        for name, value in given.items():
            if value is not None and not (value >= 0 if name == "warmup_epochs" else value > 0):
                raise HpcrunError(f"WarmupScaling got {name}={value}", hint="give a positive number")
        self.warmup_epochs, self.factor, self.learning_rate = warmup_epochs, factor, learning_rate
        self.momentum_correction, self.verbose = momentum_correction, verbose
        self._optimizer: Keras = None

    def set_model(self, model: keras.Model) -> None:
        """Note the compiled rate: before any callback has restored another one."""
        super().set_model(model)
        if model.optimizer is None:
            return
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        if optimizer is self._optimizer:
            return
        if not isinstance(getattr(optimizer, "_learning_rate", None), keras.Variable):
            raise HpcrunError(
                f"WarmupScaling sets the learning rate, but {type(optimizer).__name__} has a schedule of its own",
                hint="compile with a number, and decay it by keras.callbacks.LearningRateScheduler "
                "or ReduceLROnPlateau after the warm-up",
            )
        self._optimizer, self._new = optimizer, int(optimizer.iterations) == 0
        self._base = self.learning_rate or float(optimizer.learning_rate)

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Look at the optimizer once more: another callback may have restored it."""
        self._factor = world().size if self.factor is None else self.factor
        self._steps = (self.params or {}).get("steps")
        self._started = self._finished = False

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Refuse to guess what the reference is; count the epoch's steps."""
        self._epoch, self._last_batch = epoch, 0
        if epoch < self.warmup_epochs and not self._new and self.learning_rate is None and self._factor != 1:
            raise HpcrunError(
                f"WarmupScaling meets an optimizer that has taken steps; its learning rate, {self._base:.6g}, may be "
                "scaled already",
                hint="WarmupScaling(learning_rate=...) says what one rank's rate is; or compile the model anew",
            )

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Set the step's rate."""
        self._last_batch = batch
        if self._finished:
            return
        progress = self._epoch + (batch / self._steps if self._steps else 0)  # epochs
        self._finished = progress >= self.warmup_epochs
        target = self._base * self._factor
        if self._finished:
            if self._started or self._is_new():  # one that was restored beyond the warm-up has its rate
                self._set(target)
                self._print(f"learning rate {target:.6g}: the warm-up is over")
            return
        if not self._started:
            self._print(
                f"learning rate {self._base:.6g} grows to {target:.6g} over {self.warmup_epochs:g} epochs: the warm-up"
                + (f", from epoch {self._epoch + 1}" if self._epoch else "")
                + ("" if self._steps else "; an epoch's steps are unknown, the first one keeps its rate")
            )
            self._started = True
        self._set(self._base + (target - self._base) * progress / self.warmup_epochs)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Know the number of steps from now on."""
        self._steps = self._steps or self._last_batch + 1

    def _is_new(self) -> bool:
        return bool(self.model is not None and int(self._optimizer.iterations) == 0)

    def _set(self, rate: float) -> None:
        # On JAX the state of a running epoch is not in the variables; asking for the model brings it there, and makes
        # Keras take it from there for the next step.
        if self.model is None:
            return
        optimizer = self._optimizer
        before = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
        optimizer.learning_rate = rate
        now = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
        if now == before or not self.momentum_correction or not isinstance(optimizer, keras.optimizers.SGD):
            return
        for velocity in getattr(optimizer, "momentums", []):
            velocity.assign(velocity.value * (now / before))

    def _print(self, line: str) -> None:
        if self.verbose and world().rank == 0:
            print_line(line)
