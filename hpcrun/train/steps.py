"""Wrappers of Keras's training, test and predict steps that accept shards of batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any

import keras

from hpcrun.train.backends import is_computed, wait_for_step
from hpcrun.train.data.batch_share import use_share
from hpcrun.train.data.shards import PredictShard, Shard, first_rank_with_samples
from hpcrun.train.losses import scale_losses
from hpcrun.train.metrics import keep_callback_evaluation_local, reduce_metrics_over_ranks
from hpcrun.train.model_build import is_custom_step
from hpcrun.train.rank_random import use_rank_seeds
from hpcrun.train.ranks.world import world
from hpcrun.train.state import check_same_weights, set_jax_state
from hpcrun.train.unsupported import refuse_undistributed_fit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hpcrun.train.checkpoint import Checkpoint
    from hpcrun.train.gradients.reducer import Reducer
    from hpcrun.train.pipeline.pipeline import Pipeline
    from hpcrun.train.types import Data, Keras

    Step = Callable[..., Any]


@dataclass
class TrainingState:
    """Training state of a model that Keras does not track.

    Attributes:
        open_ended: Whether the number of batches in an epoch is unknown.
        in_epoch: Whether training steps of an epoch are running.
        batch: Number of complete batches of this epoch.
        skip: Number of batches of this epoch that were complete before a restart.
        checkpoint: The checkpoint callback; None if no checkpoints are written.
        weights_broadcast: Whether rank 0's weights have been broadcast.
        reducers: The reducers of the model's optimizers.
        variables_checked: Number of variables broadcast at the beginning of a `fit`; None after the first step.
        traced: The loss, metrics and optimizers with which each custom step was traced, by name of the step.
        samples_seen: Variable that counts the samples of all ranks in this epoch, for custom steps (not on JAX).
        evaluates_locally: Whether this rank evaluates alone, as `self.model.evaluate` of a callback does.
        data_seconds: Time for which steps have waited for batches, in seconds; None if not measured.
        last_batch: The last batch of this rank; set only if `data_seconds` is measured.
        last_logs: The logs of the last step, which may still be running.
        weights_before: Copies of the model's variables from before the last step; empty if not needed.
        pipeline: The stages of the model; None if each rank has the whole model.
    """

    open_ended: bool = False
    in_epoch: bool = False
    batch: int = 0
    skip: int = 0
    checkpoint: Checkpoint | None = None
    weights_broadcast: bool = False
    reducers: list[Reducer] = field(default_factory=list)
    variables_checked: int | None = None
    traced: dict[str, tuple[Keras, ...]] = field(default_factory=dict)
    samples_seen: Data = None
    evaluates_locally: bool = False
    data_seconds: float | None = None
    last_batch: Data = None
    last_logs: Data = None
    weights_before: list[keras.Variable] = field(default_factory=list)
    pipeline: Pipeline | None = None


def wrap_steps(model: keras.Model) -> None:
    """Wrap the steps of a Keras model to train, test and predict on shards of batches; a second call has no effect.

    The methods are wrapped on the instance, so that a `train_step` of a subclass is still called. The wrappers pass
    data other than a `Shard` to the original steps.

    Args:
        model: The model, changed in place.
    """
    if hasattr(model, "training_state"):
        return
    model.training_state = TrainingState()
    accept = _accept_shards_stateless if keras.backend.backend() == "jax" else accept_shards
    model.train_step = accept(model, model.train_step, is_training=True)
    if keras.backend.backend() != "jax" and is_custom_step(
        model, "train_step"
    ):  # the loss metric of a custom step may count batches instead of samples
        model.training_state.samples_seen = keras.Variable(0.0, dtype="float32", trainable=False, name="seen")
    model.test_step = accept(model, model.test_step)
    model.predict_step = _accept_predict_shards(model.predict_step)
    # drop compiled functions, because they contain the original steps
    model.train_function = model.test_function = model.predict_function = None
    _wrap_train_function(model)
    reduce_metrics_over_ranks(model)
    keep_callback_evaluation_local(model)
    refuse_undistributed_fit(model)


def _wrap_train_function(model: keras.Model) -> None:
    """Wrap a model's training function: skip batches, measure waits for data, and keep the ranks in the same step."""
    original_make_train_function, training_state, backend = (
        model.make_train_function,
        model.training_state,
        keras.backend.backend(),
    )

    def make_train_function(force: bool = False) -> None:
        if model.train_function is not None and not force:
            return
        original_make_train_function(force=True)
        original_train_function = model.train_function
        uses_graph = backend == "tensorflow" and not (model.run_eagerly or training_state.pipeline)
        spec, train_on_fetched = None, original_train_function

        def train_function(*data: Data) -> Keras:
            nonlocal spec, train_on_fetched
            batches_per_call = model.steps_per_execution
            if training_state.batch < training_state.skip:
                training_state.batch += batches_per_call
                return _skip_batches(model, data)
            is_measured = training_state.data_seconds is not None and batches_per_call == 1 and backend != "torch"
            # If the data ended inside the compiled step, the step would be incomplete, but Adam would count it as a
            # step.
            if is_measured or (training_state.open_ended and backend == "tensorflow"):
                if uses_graph and data[0].element_spec != spec:  # of the first `fit`, or of one with other data
                    spec = data[0].element_spec
                    train_on_fetched = _train_on_tensors(model, spec)
                result = train_on_fetched(*_fetch_batches(training_state, data, batches_per_call))
            else:
                result = original_train_function(*data)
            training_state.batch += batches_per_call
            training_state.last_logs = result[0] if backend == "jax" else None
            _synchronize_after_step(model, result)
            return result

        model.train_function = train_function

    model.make_train_function = make_train_function


def _train_on_tensors(model: keras.Model, spec: Data) -> Step:
    """Return a training function of an iterator of batches on TensorFlow, which needs no retracing for any of them."""
    from hpcrun.train.any_batch_size import compile_for_any_batch_size

    step = compile_for_any_batch_size(model.train_step, (spec,), jit_compile=model.jit_compile)

    def train(batches: Iterator[Data]) -> Keras:
        return [step(batch) for batch in batches][-1]

    return train


def _fetch_batches(training_state: TrainingState, data: Sequence[Data], count: int) -> Sequence[Data]:
    """Fetch the batches of a training function's arguments, and measure the time for which it waits for data."""
    *state, iterator = data  # only JAX passes a state
    start = perf_counter()
    if not (batches := list(islice(iterator, count))):
        raise StopIteration
    if training_state.data_seconds is not None:
        if is_computed(training_state.last_logs):  # do not count the wait while the GPU computes
            training_state.data_seconds += perf_counter() - start
        training_state.last_batch = batches[-1]
    return *state, iter(batches)


def _synchronize_after_step(model: keras.Model, result: Data) -> None:
    """After a step, check that weights are equal on all ranks, and whether a rank wants to stop or exit."""
    training_state, backend = model.training_state, keras.backend.backend()
    if training_state.variables_checked is not None and training_state.variables_checked < len(
        model.variables
    ):  # the first step has created variables
        check_same_weights(model)
    training_state.variables_checked = None
    if training_state.reducers:
        wait_for_step(result)
        model.stop_training = model.stop_training or any(reducer.stop_agreed for reducer in training_state.reducers)
    if training_state.checkpoint and training_state.checkpoint.stop_requested():
        if backend == "jax":
            set_jax_state(model, result[1])
        training_state.checkpoint.write_and_exit()


def _skip_batches(model: keras.Model, data: Sequence[Data]) -> Keras:
    """Skip the batches of a training function, and return logs as a step does."""
    *state, batches = data  # only JAX passes a state
    if keras.backend.backend() != "torch":  # on PyTorch, Keras has already fetched the batches
        for _ in islice(batches, model.steps_per_execution):
            pass
    return ({}, state[0]) if state else model.get_metrics_result()


def accept_shards(model: keras.Model, step: Step, *, takes_shard: bool = False, is_training: bool = False) -> Step:
    """Return a step that accepts a `Shard`, weights gradients and losses by its share, and passes other data on.

    Args:
        model: The model of the step.
        step: A step of the model, whose argument is the data of a shard.
        takes_shard: Whether the argument of the step is a `Shard` itself, also on a single rank.
        is_training: Whether the step trains the model.
    """

    def step_on_shard(data: Shard | Data) -> Keras:
        if not isinstance(data, Shard):
            return step_on_shard.inner(data)  # type: ignore[attr-defined]
        if is_training and model.training_state.samples_seen is not None:
            shard_size = keras.ops.cast(keras.ops.shape(first_rank_with_samples(data.data))[0], "float32")
            # The share is 0 if this rank has no sample, in a batch of fewer samples than ranks.
            model.training_state.samples_seen.assign_add(keras.ops.divide_no_nan(shard_size, data.share))
        for saved_variable, variable in zip(
            model.training_state.weights_before if is_training else (), model.variables, strict=False
        ):
            saved_variable.assign(variable.value)
        if world().size == 1 and not takes_shard:
            return step(data.data)
        old_metrics = [keras.ops.copy(v.value) for v in model.metrics_variables]
        with use_share(data.share), scale_losses(model), use_rank_seeds():
            logs = step(data if takes_shard else data.data)
        new_metrics = _keep_old_metrics(data.share, [v.value for v in model.metrics_variables], old_metrics)
        for variable, value in zip(model.metrics_variables, new_metrics, strict=False):
            variable.assign(value)
        return logs

    step_on_shard.inner = step  # type: ignore[attr-defined]
    return step_on_shard


def _accept_shards_stateless(model: keras.Model, step: Step, *, is_training: bool = False) -> Step:  # noqa: ARG001
    def step_on_shard(state: tuple[Data, ...], data: Shard | Data) -> Keras:
        if not isinstance(data, Shard):
            return step(state, data)
        if world().size == 1:
            return step(state, data.data)
        with use_share(data.share), scale_losses(model):
            logs, (*new, metrics) = step(state, data.data)
        return logs, (*new, _keep_old_metrics(data.share, metrics, state[-1]))

    step_on_shard.inner = step  # type: ignore[attr-defined]
    return step_on_shard


def _keep_old_metrics(share: Data, metrics: Sequence[Data], old_metrics: Sequence[Data]) -> list[Data]:
    """Return the new state of the metrics, or the old state if this rank has no sample (share 0)."""
    return [keras.ops.where(share > 0, new, old) for new, old in zip(metrics, old_metrics, strict=False)]


def _accept_predict_shards(step: Step) -> Step:
    def on_predict_shard(*state_and_data: Keras) -> Keras:
        *state, data = state_and_data  # only JAX passes a state
        is_shard = isinstance(data, PredictShard)
        with use_rank_seeds():
            result = step(*state, data.data if is_shard else data)
        if not is_shard:
            return result
        if state:
            outputs, new_state = result
            return (outputs, data.positions), new_state
        return result, data.positions

    on_predict_shard.inner = step  # type: ignore[attr-defined]
    return on_predict_shard
