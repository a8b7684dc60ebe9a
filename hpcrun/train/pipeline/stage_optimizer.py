"""The optimizer of a pipeline: each rank updates the weights of its stage.

The optimizer is built for all weights, so that the order of its variables is that of one process. What depends on the
gradients of the whole model is agreed among all ranks in one small allreduce per step: whether all are finite (loss
scaling), the sum of their squares (`global_clipnorm`), and whether a rank wants to stop.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import cached_property
from types import MethodType
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.optimizers.base_optimizer import BaseOptimizer  # Keras does not export it

from hpcrun.run.waiting import waiting
from hpcrun.train.data.batch_share import record_share, use_share
from hpcrun.train.gradients.optimizer import average_gradients
from hpcrun.train.gradients.reducer import Reducer
from hpcrun.train.pipeline.absent import AbsentVariable
from hpcrun.train.pipeline.lazy import initialize, lazy_weights
from hpcrun.train.pipeline.messages import WAIT
from hpcrun.train.ranks.polling import poll
from hpcrun.train.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hpcrun.train.pipeline.gradient_sums import GradientSums
    from hpcrun.train.pipeline.layout import Layout
    from hpcrun.train.pipeline.variable_service import VariableService
    from hpcrun.train.types import Data, Keras


def build_optimizer(
    model: keras.Model, stage_of: Mapping[int, int], service: VariableService
) -> keras.optimizers.Optimizer:
    """Build the optimizer of a model for all weights, with memory for those of this rank's stage only.

    Args:
        model: The compiled model; an optimizer with state is replaced by an equal one.
        stage_of: The stage of each variable of the model, by identity.
        service: The service that fetches the optimizer's variables of other stages.

    Returns:
        The optimizer.
    """
    optimizer, old_variables = model.optimizer, []
    if optimizer.built:
        old_variables = optimizer.variables
        optimizer = model.optimizer = type(optimizer).from_config(optimizer.get_config())
    inner = inner_optimizer(optimizer)
    for item in {id(o): o for o in (optimizer, inner)}.values():
        _do_not_read_values(item)
    variables = _RecordingList(model.trainable_variables)
    variables.optimizer = inner
    with lazy_weights():
        optimizer.build(variables)
    initialize(v for v in optimizer.variables if stage_of.get(variables.references.get(id(v), 0)) is None)
    stages = [stage_of.get(variables.references.get(id(v), 0)) for v in optimizer.variables]
    own = [v for v, stage in zip(optimizer.variables, stages, strict=True) if stage == service.layout.stage]
    initialize(own)
    service.keep(len(model.variables))  # not the state of an earlier optimizer
    service.add(optimizer.variables, stages)
    for variable, old in zip(optimizer.variables, old_variables, strict=False):
        if not isinstance(variable, AbsentVariable):
            variable.assign(old)
    return optimizer


def inner_optimizer(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """Return the optimizer that a `LossScaleOptimizer` wraps, or the optimizer itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)


class _RecordingList(list):  # type: ignore[type-arg]
    """A list of weights that records the optimizer variables which are created while a loop is at a weight.

    Attributes:
        optimizer: The optimizer that is being built.
        references: Identity of the weight of each variable of the optimizer, by its identity.
    """

    optimizer: Keras

    def __init__(self, variables: Sequence[keras.Variable]) -> None:
        super().__init__(variables)
        self.references: dict[int, int] = {}

    def __iter__(self) -> Iterator[keras.Variable]:
        for weight in super().__iter__():
            count = len(self.optimizer._variables)  # noqa: SLF001
            yield weight
            self.references.update({id(new): id(weight) for new in self.optimizer._variables[count:]})  # noqa: SLF001


def _do_not_read_values(optimizer: keras.optimizers.Optimizer) -> None:
    """Keep Keras's optimizer from reading weights of other stages to find their devices and keys."""
    original_key: Callable[[Keras], object] = optimizer._var_key  # noqa: SLF001

    def key(variable: Keras) -> object:
        return id(variable) if isinstance(variable, AbsentVariable) else original_key(variable)

    add_variable = MethodType(BaseOptimizer.add_variable_from_reference, optimizer)
    object.__setattr__(optimizer, "add_variable_from_reference", add_variable)
    object.__setattr__(optimizer, "_var_key", key)


class StageOptimizer:
    """The steps of the optimizer on this rank.

    Args:
        layout: This rank's place.
        optimizer: The built optimizer.
        sums: The gradients of the stage.

    Attributes:
        reducer: Sums the gradients of the replicas.
    """

    def __init__(self, layout: Layout, optimizer: keras.optimizers.Optimizer, sums: GradientSums) -> None:
        self.layout, self.optimizer, self.sums = layout, optimizer, sums
        self.reducer = Reducer(layout.peers, hosts=layout.hosts)
        self._apply = tf.function(self._trace_apply, autograph=False)
        self._measure = tf.function(self._trace_measure, autograph=False)

    def step(self, share: float) -> None:
        """Take a step with the accumulated gradients, and set these to 0. Collective.

        Args:
            share: The replica's share of the batch.
        """
        gradients: list[Data] | None = None
        if self.layout.replica.size > 1 and self.sums.trained():
            with use_share(share):
                gradients = average_gradients(self.reducer, self.sums.gradients(), self.sums.trained())
        record_share(share)
        is_scaled = isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer)
        is_clipped = bool(inner_optimizer(self.optimizer).global_clipnorm)
        squares, is_finite = 0.0, True
        if (is_scaled or is_clipped) and self.sums.trained():
            squares, is_finite = (value.numpy().item() for value in self._measure(gradients))
        squares, is_finite = self._agree(squares, is_finite)
        apply = self._apply_sums if gradients is None else self._apply
        apply(gradients, tf.constant(is_finite), tf.constant(squares, "float32"))
        self.sums.reset(large=True)

    @cached_property
    def _apply_sums(self) -> Any:
        """`_apply` for the sums of this rank, without `tf.function`'s search for a graph."""
        return self._apply.get_concrete_function(None, tf.TensorSpec((), "bool"), tf.TensorSpec((), "float32"))

    def _agree(self, squares: float, is_finite: bool) -> tuple[float, bool]:
        """Return the values of the whole model, and let the reducer know what other ranks request. Collective."""
        from mpi4py import MPI

        reducer, is_first = self.reducer, self.layout.replica.rank == 0  # all replicas have the same gradients here
        values = np.array(
            [reducer.stop_requested, reducer.exit_requested, squares * is_first, not is_finite], np.float64
        )
        with waiting(WAIT, "the end of a step"):
            request = world().comm.Iallreduce(MPI.IN_PLACE, values)
            poll(request.Test, 5e-4)
        reducer.stop_agreed, reducer.exit_agreed = bool(values[0]), bool(values[1])
        return float(values[2]), not values[3]

    def _trace_measure(self, gradients: list[Data] | None) -> tuple[Data, Data]:
        gradients = self.sums.gradients() if gradients is None else gradients
        # As Keras does, each row of an embedding's gradient counts, also rows of the same word.
        values = [g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients]
        squares, is_finite = tf.zeros((), "float64"), tf.constant(True)
        for value in values:
            with tf.control_dependencies([squares, is_finite]):  # one by one, for the memory of temporary arrays
                squares += tf.reduce_sum(tf.square(tf.cast(value, "float64")))
                is_finite &= tf.reduce_all(tf.math.is_finite(value))
        return squares, is_finite

    def _trace_apply(self, gradients: list[Data] | None, is_finite: Data, squares: Data) -> None:
        optimizer, inner = self.optimizer, inner_optimizer(self.optimizer)
        gradients = self.sums.gradients() if gradients is None else gradients
        norm = tf.sqrt(squares)
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            norm /= optimizer.dynamic_scale.value
        elif optimizer.loss_scale_factor is not None:
            norm /= optimizer.loss_scale_factor
        updates = _SequentialUpdates(
            inner, _clip_factor(norm, inner.global_clipnorm) if inner.global_clipnorm else None
        )
        with ExitStack() as replaced:
            replaced.enter_context(_replaced(inner, "update_step", updates.update))
            replaced.enter_context(_replaced(inner, "_apply_weight_decay", updates.decay))
            if inner.global_clipnorm:
                replaced.enter_context(_replaced(inner, "_clip_gradients", lambda gradients: gradients))
            if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
                replaced.enter_context(_replaced(optimizer, "check_finite", lambda _: is_finite))
            if gradients:
                optimizer.apply(gradients, self.sums.trained())
            else:
                _count_step(optimizer, is_finite)
        self.sums.reset(large=False)


class _SequentialUpdates:
    """The updates of a Keras optimizer, one after the other, so that temporary arrays of one weight exist at a time.

    Args:
        optimizer: The optimizer.
        factor: What each gradient is multiplied with; None for nothing.
    """

    def __init__(self, optimizer: keras.optimizers.Optimizer, factor: Data | None) -> None:
        self._update: Callable[..., None] = optimizer.update_step
        self._decay: Callable[..., None] = optimizer._apply_weight_decay  # noqa: SLF001
        self._factor = factor
        self._previous: list[Data] = []

    def update(self, gradient: Data, variable: Data, learning_rate: Data) -> None:
        """Update a weight, as `update_step` of the optimizer does."""
        with self._after_the_previous():
            self._update(gradient if self._factor is None else _scaled(gradient, self._factor), variable, learning_rate)

    def decay(self, variables: Sequence[Data]) -> None:
        """Decay weights, as `_apply_weight_decay` of the optimizer does."""
        for variable in variables:
            with self._after_the_previous():
                self._decay([variable])

    @contextmanager
    def _after_the_previous(self) -> Iterator[None]:
        graph = tf.compat.v1.get_default_graph()
        count = len(graph.get_operations())
        with tf.control_dependencies(self._previous):
            yield
        self._previous = [tf.group(*graph.get_operations()[count:])]


def _clip_factor(norm: Data, limit: float) -> Data:
    """Return the factor of Keras's clipping by the global norm; NaN if the norm is not finite."""
    return limit * tf.minimum(1.0 / norm, 1.0 / limit) + (norm - norm)


def _scaled(gradient: Data, scale: Data) -> Data:
    """Return a scaled gradient; dense also for an embedding, since Keras's clipping adds up the rows of a word."""
    return tf.convert_to_tensor(gradient) * tf.cast(scale, gradient.dtype)


def _count_step(optimizer: keras.optimizers.Optimizer, is_finite: Data) -> None:
    """Count a step on a stage without trainable weights, on which Keras's optimizer does nothing."""
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        keras.ops.cond(
            is_finite,
            lambda: optimizer._stateful_handle_finite_grads([], []),  # noqa: SLF001
            optimizer._stateful_handle_non_finite_grads,  # noqa: SLF001
        )
    iterations = inner_optimizer(optimizer)._iterations  # noqa: SLF001
    iterations.assign_add(tf.cast(is_finite, iterations.dtype))


@contextmanager
def _replaced(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    object.__setattr__(owner, name, function)
    try:
        yield
    finally:
        object.__delattr__(owner, name)
