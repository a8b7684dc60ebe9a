"""Learning rate scaling with the number of ranks, with a warm-up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras

from hpcrun.errors import HpcrunError
from hpcrun.train.ranks.world import print_line, world

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.train.types import Keras, Logs


class WarmupScaling(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Scales the learning rate with the number of ranks, and warms it up, as Goyal et al. do (arXiv:1706.02677).

    Compile with the rate for one rank's share of the batch. The rate grows linearly with every step to `factor` times
    that within the first epochs (sections 2.1 and 2.2): step t of `warmup_epochs` times s steps uses lr (1 + (factor -
    1) t / (warmup_epochs s)). After the warm-up the callback leaves the rate alone, so that `ReduceLROnPlateau` and
    scheduler callbacks continue from there. If Keras does not know s in advance, the first epoch keeps its initial rate
    and counts the steps. With `steps_per_execution` the rate grows once per execution.

    `fit(initial_epoch=...)` starts at that epoch's rate if the optimizer is new; after the warm-up, an optimizer that
    has taken steps keeps its rate.

    Args:
        warmup_epochs: Epochs until the full rate; 0 starts with it.
        factor: The full rate is `factor` times the optimizer's; default: the number of ranks.
        momentum_correction: With `keras.optimizers.SGD`, whose velocity contains the rate: when the rate changes from a
            to b, scale the velocity by b / a (section 3, equation 10). Other optimizers, and momentum 0, need no
            correction.
        verbose: Whether rank 0 prints when the warm-up begins and ends.
        learning_rate: The rate that `factor` multiplies; default: the optimizer's rate when the callback first sees it.
            An optimizer that has taken steps (a loaded one, say) may have a scaled rate already: it needs this
            argument.
        decay: A function of the epoch, from 0, that gives its rate as a factor of the full one after the warm-up, such
            as `hpcrun.train.decay("cosine", epochs)`; default: the callback leaves the rate alone then.

    Raises:
        HpcrunError: An argument is negative; or, when training begins, the optimizer's rate is not a single number.
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
        """Record the compiled rate, before a callback restores another one."""
        super().set_model(model)
        if model.optimizer is None:
            return
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        if optimizer is self._optimizer:
            return
        if not isinstance(getattr(optimizer, "_learning_rate", None), keras.Variable):
            raise HpcrunError(
                f"WarmupScaling sets the learning rate, but {type(optimizer).__name__} has a schedule of its own",
                hint="compile with a number, and decay it with keras.callbacks.LearningRateScheduler "
                "or ReduceLROnPlateau after the warm-up",
            )
        self._optimizer, self._new = optimizer, int(optimizer.iterations) == 0
        self._base = self.learning_rate or float(optimizer.learning_rate)

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Read the factor and the number of steps."""
        self._factor = world().size if self.factor is None else self.factor
        self._steps = (self.params or {}).get("steps")
        self._started = self._finished = False

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Refuse an optimizer whose rate may be scaled already; reset the step count."""
        self._epoch, self._last_batch = epoch, 0
        if epoch < self.warmup_epochs and not self._new and self.learning_rate is None and self._factor != 1:
            raise HpcrunError(
                f"WarmupScaling got an optimizer that has taken steps; its learning rate, {self._base:.6g}, may be "
                "scaled already",
                hint="pass one rank's rate as WarmupScaling(learning_rate=...), or compile the model again",
            )
        if self.decay and self._finished:
            self._decay()

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Set the step's rate."""
        self._last_batch = batch
        if self._finished:
            return
        progress = self._epoch + (batch / self._steps if self._steps else 0)  # epochs
        self._finished = progress >= self.warmup_epochs
        target = self._full_rate()
        if self._finished:
            if self._started or self._is_new():  # an optimizer restored after the warm-up keeps its rate
                self._set(target)
                self._print(f"learning rate {target:.6g}: the warm-up is over")
            elif self.decay:
                self._decay()
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
        """Learn the number of steps per epoch."""
        self._steps = self._steps or self._last_batch + 1

    def _decay(self) -> None:
        rate = self._full_rate()
        if self._set(rate):
            self._print(f"learning rate {rate:.6g} from epoch {self._epoch + 1} on")

    def _full_rate(self) -> float:
        """Return the rate of this epoch after the warm-up; within it, the rate that it leads to."""
        decayed = self.decay(self._epoch) if self.decay and self._epoch >= self.warmup_epochs else 1.0
        return float(self._base * self._factor * decayed)

    def _is_new(self) -> bool:
        return bool(self.model is not None and int(self._optimizer.iterations) == 0)

    def _set(self, rate: float) -> bool:
        """Set the rate, correct the momentum, and return whether the rate has changed."""
        # On JAX the variables do not hold the state of a running epoch; accessing the model fetches it, and makes Keras
        # use it for the next step.
        if self.model is None:
            return False
        optimizer = self._optimizer
        before = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
        optimizer.learning_rate = rate
        now = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
        if before not in {0, now} and self.momentum_correction and isinstance(optimizer, keras.optimizers.SGD):
            for velocity in getattr(optimizer, "momentums", []):
                velocity.assign(velocity.value * (now / before))
        return now != before

    def _print(self, line: str) -> None:
        if self.verbose and world().rank == 0:
            print_line(line)
