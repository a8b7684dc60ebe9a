"""Scaling of the learning rate with the number of ranks, with a warm-up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras

from hpcrun.errors import HpcrunError
from hpcrun.run.job import print_line
from hpcrun.train.pipeline.absent import present
from hpcrun.train.ranks.replicas import replica
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.train.types import Keras, Logs


class WarmupScaling(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Callback that scales the learning rate with the number of ranks, with a warm-up (Goyal et al., arXiv:1706.02677).

    Compile the model with the learning rate lr for one rank's share of the batch. In the first `warmup_epochs` epochs
    of s steps, the rate grows linearly with every step to `factor` times lr (sections 2.1 and 2.2): the rate of step t
    is lr (1 + (factor - 1) t / (warmup_epochs s)). After the warm-up, the callback does not change the rate, so that
    `ReduceLROnPlateau` and scheduler callbacks can change it. If Keras does not know s in advance, the rate stays lr in
    the first epoch, which counts the steps. With `steps_per_execution`, the rate grows once per execution.

    `fit(initial_epoch=...)` starts at the rate of the initial epoch if the optimizer is new. After the warm-up, an
    optimizer that has taken steps keeps its rate.

    Args:
        warmup_epochs: Number of epochs of the warm-up; 0: no warm-up.
        factor: Ratio of the full learning rate to the optimizer's learning rate; default: the number of ranks, or of
            replicas of a pipeline.
        momentum_correction: Whether to scale the velocity of `keras.optimizers.SGD`, which contains the rate, by b / a
            when the rate changes from a to b (section 3, equation 10). Optimizers other than SGD need no correction of
            the momentum.
        verbose: Whether rank 0 prints when the warm-up begins and ends.
        learning_rate: The rate that `factor` multiplies; default: the optimizer's learning rate when training begins.
            Required for an optimizer that has taken steps (for example, of a loaded model), because its learning rate
            may already be scaled.
        decay: Function that converts an epoch, from 0, to a factor of the full rate after the warm-up, such as
            `hpcrun.train.decay("cosine", epochs)`; default: the callback does not change the rate after the warm-up.

    Raises:
        HpcrunError: An argument is negative, or the optimizer's learning rate is not a single number when training
            begins.
    """

    def __init__(
        self,
        warmup_epochs: float = 5,
        factor: float | None = None,
        momentum_correction: bool = True,
        verbose: bool = True,
        learning_rate: float | None = None,
        *,
        decay: Callable[[int], float] | None = None,
    ) -> None:
        super().__init__()
        arguments = {"warmup_epochs": warmup_epochs, "factor": factor, "learning_rate": learning_rate}
        for name, value in arguments.items():
            if value is not None and not (value >= 0 if name == "warmup_epochs" else value > 0):
                raise HpcrunError(f"WarmupScaling got {name}={value}", hint="give a positive number")
        self.warmup_epochs, self.factor, self.learning_rate = warmup_epochs, factor, learning_rate
        self.momentum_correction, self.verbose = momentum_correction, verbose
        self.decay = decay
        self._optimizer: Keras = None

    def set_model(self, model: keras.Model) -> None:
        """Record the learning rate given to `compile`, before other callbacks restore a different one."""
        super().set_model(model)
        if model.optimizer is None:
            return
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        if optimizer is self._optimizer:
            return
        if not isinstance(getattr(optimizer, "_learning_rate", None), keras.Variable):
            raise HpcrunError(
                f"WarmupScaling sets the learning rate, but {type(optimizer).__name__} has its own schedule",
                hint="compile with a number, and decay it with keras.callbacks.LearningRateScheduler "
                "or ReduceLROnPlateau after the warm-up",
            )
        self._optimizer, self._is_new_optimizer = optimizer, int(optimizer.iterations) == 0
        self._base_rate = self.learning_rate or float(optimizer.learning_rate)

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Determine the factor and the number of steps per epoch."""
        self._factor = replica().size if self.factor is None else self.factor
        self._steps = (self.params or {}).get("steps")
        self._started = self._finished = False

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Raise an error if the optimizer's learning rate may already be scaled; reset the step count."""
        self._epoch, self._last_batch = epoch, 0
        if (
            epoch < self.warmup_epochs
            and not self._is_new_optimizer
            and self.learning_rate is None
            and self._factor != 1
        ):
            raise HpcrunError(
                f"WarmupScaling got an optimizer that has taken steps; its learning rate, {self._base_rate:.6g}, "
                "may be scaled already",
                hint="pass one rank's rate as WarmupScaling(learning_rate=...), or compile the model again",
            )
        if self.decay and self._finished:
            self._set_decayed_rate()

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Set the learning rate of the step."""
        self._last_batch = batch
        if self._finished:
            return
        progress = self._epoch + (batch / self._steps if self._steps else 0)  # epochs so far, as a float
        self._finished = progress >= self.warmup_epochs
        target = self._full_rate()
        if self._finished:
            if self._started or self._is_new():  # after the warm-up, a restored optimizer keeps its learning rate
                self._set_rate(target)
                self._print(f"learning rate {target:.6g}: the warm-up is over")
            elif self.decay:
                self._set_decayed_rate()
            return
        if not self._started:
            self._print(
                f"learning rate {self._base_rate:.6g} grows to {target:.6g} over {self.warmup_epochs:g} epochs: "
                "the warm-up"
                + (f", from epoch {self._epoch + 1}" if self._epoch else "")
                + ("" if self._steps else "; unknown number of steps per epoch: the first epoch keeps its rate")
            )
            self._started = True
        self._set_rate(self._base_rate + (target - self._base_rate) * progress / self.warmup_epochs)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Record the number of steps per epoch."""
        self._steps = self._steps or self._last_batch + 1

    def _set_decayed_rate(self) -> None:
        rate = self._full_rate()
        if self._set_rate(rate):
            self._print(f"learning rate {rate:.6g} from epoch {self._epoch + 1} on")

    def _full_rate(self) -> float:
        """Return the full learning rate of this epoch; during the warm-up, the rate that the warm-up reaches."""
        decay_factor = self.decay(self._epoch) if self.decay and self._epoch >= self.warmup_epochs else 1.0
        return float(self._base_rate * self._factor * decay_factor)

    def _is_new(self) -> bool:
        return bool(self.model is not None and int(self._optimizer.iterations) == 0)

    def _set_rate(self, rate: float) -> bool:
        """Set the learning rate, correct the momentum, and return whether the rate changed."""
        # On JAX, variables do not contain the state of a running epoch. Accessing `self.model` copies the state to
        # them, and makes Keras use the variables in the next step.
        if self.model is None:
            return False
        optimizer = self._optimizer
        previous_rate = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
        optimizer.learning_rate = rate
        current_rate = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
        if (
            previous_rate not in {0, current_rate}
            and self.momentum_correction
            and isinstance(optimizer, keras.optimizers.SGD)
        ):
            for velocity in present(getattr(optimizer, "momentums", [])):
                velocity.assign(velocity.value * (current_rate / previous_rate))
        return current_rate != previous_rate

    def _print(self, line: str) -> None:
        if self.verbose and world().rank == 0:
            print_line(line)
