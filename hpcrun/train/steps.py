"""The model's side of the hook: what a rank's part of the batch means to Keras's training, test and predict steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import keras

from hpcrun.errors import HpcrunError
from hpcrun.train.backends import settle
from hpcrun.train.build import is_own
from hpcrun.train.data.parts import Asked, Part
from hpcrun.train.data.shares import sharing
from hpcrun.train.figures import let_evaluate_alone, sum_up
from hpcrun.train.gradients.lookups import Lookups
from hpcrun.train.gradients.optimizer import Caught, catching
from hpcrun.train.gradients.slices import is_sparse
from hpcrun.train.losses import of_all_ranks
from hpcrun.train.ranks.world import say, world
from hpcrun.train.state import attach_state, check_alike

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcrun.train.checkpoint import Checkpoint
    from hpcrun.train.gradients.reducer import Reducer
    from hpcrun.train.kinds import Data, Keras

    Step = Callable[..., Any]


@dataclass
class Course:
    """Where a model is in its training, beyond what Keras knows.

    Attributes:
        open_ended: Whether only the data tells where an epoch ends.
        in_epoch: Whether an epoch's training steps are under way.
        batch: Batches of this epoch that are done.
        skip: Batches of this epoch that were done before an interruption.
        checkpoint: Where it is kept, if anywhere.
        alike: Whether all ranks have had the same weights once.
        reducers: What the gradients of the model's optimizers pass through.
        variables: How many the ranks have alike since a `fit` began; None where its first step is done.
        traced: The loss, metrics and optimizers with which a step of the model's own was traced, to build it.
        seen: A variable: samples of this epoch, of all ranks, that a step of the model's own was given (not on JAX).
        whole: Whether this rank evaluates on all samples by itself, as a callback's `self.model.evaluate` does.
    """

    open_ended: bool = False
    in_epoch: bool = False
    batch: int = 0
    skip: int = 0
    checkpoint: Checkpoint | None = None
    alike: bool = False
    reducers: list[Reducer] = field(default_factory=list)
    variables: int | None = None
    traced: dict[str, tuple[Keras, ...]] = field(default_factory=dict)
    seen: Data = None
    whole: bool = False


def attach(model: keras.Model) -> None:
    """Teach one Keras model to train, test and predict on parts of batches; once is enough, twice does no harm.

    The methods are wrapped on the instance: a subclass's own `train_step` keeps working, and what is not a `Part`
    passes through as if nothing had happened.

    Args:
        model: Changed in place.
    """
    if hasattr(model, "course"):
        return
    model.course = Course()
    on_part = _on_part_stateless if keras.backend.backend() == "jax" else _on_part
    model.train_step = on_part(model, model.train_step, trains=True)
    if keras.backend.backend() != "jax" and is_own(model, "train_step"):  # whose loss may count batches
        model.course.seen = keras.Variable(0.0, dtype="float32", trainable=False, name="seen")
    model.test_step = on_part(model, model.test_step)
    model.predict_step = _on_asked(model.predict_step)
    model.train_function = model.test_function = model.predict_function = None  # compiled around the steps as they were
    _lead(model)
    sum_up(model)
    let_evaluate_alone(model)


def _lead(model: keras.Model) -> None:
    """Wrap what runs a training step, which Keras calls from the one thread that all ranks have in step."""
    make, course, on = model.make_train_function, model.course, keras.backend.backend()

    def make_train_function(force: bool = False) -> None:
        if model.train_function is not None and not force:
            return
        make(force=True)
        run = model.train_function

        def train_function(*data: Data) -> Keras:
            together = model.steps_per_execution
            if course.batch < course.skip:
                course.batch += together
                return _skip(model, data)
            if course.open_ended and on == "tensorflow":
                # Inside the compiled step, the end of the data stops it halfway: Adam would count a step too many.
                if not (batches := list(islice(data[0], together))):
                    raise StopIteration
                data = (iter(batches),)
            result = run(*data)
            course.batch += together
            _agree_after(model, result)
            return result

        model.train_function = train_function

    model.make_train_function = make_train_function


def _agree_after(model: keras.Model, result: Data) -> None:
    """See after a step whether the ranks are alike, whether one wants to stop, and whether one was told to leave."""
    course, on = model.course, keras.backend.backend()
    if course.variables is not None and course.variables < len(model.variables):  # layers built by their first use
        check_alike(model)
    course.variables = None
    if course.reducers:
        settle(result)
        model.stop_training = model.stop_training or any(reducer.stops for reducer in course.reducers)
    if course.checkpoint and course.checkpoint.told():
        if on == "jax":
            attach_state(model, result[1])
        course.checkpoint.interrupt()


def _skip(model: keras.Model, data: Sequence[Data]) -> Keras:
    """Take batches, and do nothing with them; return what a step returns."""
    *state, batches = data  # a state on JAX only
    if keras.backend.backend() != "torch":  # where they have been taken already
        for _ in islice(batches, model.steps_per_execution):
            pass
    return ({}, state[0]) if state else model.get_metrics_result()


def compile_step(model: keras.Model) -> None:
    """Let XLA compile the forward and backward pass of a TensorFlow model's training step, but not the reduction.

    The reduction calls MPI from Python, which XLA cannot contain: the compiled part ends with the gradients. A step
    that goes on after them, with another step of an optimizer, or whose ranks add up before them, is not compiled.

    Args:
        model: One that `attach` has changed, and that was compiled with XLA; changed in place.
    """
    import tensorflow as tf

    model.jit_compile = False  # or Keras would let XLA compile all of it
    step = model.train_step.inner
    caught: list[Caught] = []

    @tf.function(jit_compile=True, reduce_retracing=True, autograph=False)  # type: ignore[untyped-decorator]  # tensorflow is untyped
    def forward_backward(data: Data, share: Data) -> tuple[Keras, list[Data]]:
        with sharing(share), of_all_ranks(model), catching() as steps:
            logs = step(data)
        caught[:] = steps
        there = [g for each in steps for g in each.gradients if g is not None]
        return logs, [g.slices if is_sparse(g) else tf.convert_to_tensor(g) for g in there]

    def train_step(part: Part) -> Keras:
        why = "XLA compiles steps of one optimizer, which takes one step in them"
        try:
            forward_backward.get_concrete_function(part.data, part.share)  # so that it is known what it catches
        except HpcrunError as error:
            why = error.message
            caught.clear()
        if len(caught) != 1:
            if world().rank == 0:
                say(f"INFO: jit_compile is off: {why}")
            return step(part.data)
        logs, dense = forward_backward(part.data, part.share)
        there, (only,) = iter(dense), caught
        gradients: list[Data] = [g if g is None else next(there) for g in only.gradients]
        for number, gradient in enumerate(only.gradients):
            if is_sparse(gradient):
                gradients[number] = Lookups(gradients[number], gradient.once)
        only.optimizer.apply(gradients, only.variables)
        return logs

    model.train_step = _on_part(model, train_step, whole=True, trains=True)
    model.train_step.inner = step
    model.train_function = None


def interpret_step(model: keras.Model) -> None:
    """Let a model that `compile_step` may have changed take its training step without XLA."""
    model.train_step = _on_part(model, model.train_step.inner, trains=True)
    model.train_function = None


def _on_part(model: keras.Model, step: Step, *, whole: bool = False, trains: bool = False) -> Step:
    def on_part(data: Part | Data) -> Keras:
        if not isinstance(data, Part):
            return on_part.inner(data)  # type: ignore[attr-defined]
        if trains and model.course.seen is not None:
            here = keras.ops.cast(keras.ops.shape(keras.tree.flatten(data.data)[0])[0], "float32")
            # Of a batch of fewer samples than ranks, some have none.
            model.course.seen.assign_add(keras.ops.divide_no_nan(here, data.share))
        if world().size == 1:
            return step(data.data)
        before = [keras.ops.copy(v.value) for v in model.metrics_variables]
        with sharing(data.share), of_all_ranks(model):
            logs = step(data if whole else data.data)
        after = _counted(data.share, [v.value for v in model.metrics_variables], before)
        for variable, value in zip(model.metrics_variables, after, strict=False):
            variable.assign(value)
        return logs

    on_part.inner = step  # type: ignore[attr-defined]
    return on_part


def _on_part_stateless(model: keras.Model, step: Step, *, trains: bool = False) -> Step:  # noqa: ARG001
    def on_part(state: tuple[Data, ...], data: Part | Data) -> Keras:
        if not isinstance(data, Part):
            return step(state, data)
        if world().size == 1:
            return step(state, data.data)
        with sharing(data.share), of_all_ranks(model):
            logs, (*new, metrics) = step(state, data.data)
        return logs, (*new, _counted(data.share, metrics, state[-1]))

    on_part.inner = step  # type: ignore[attr-defined]
    return on_part


def _counted(share: Data, metrics: Sequence[Data], before: Sequence[Data]) -> list[Data]:
    """Return the metrics' state; a sample that counts 0 in the gradient counts nothing in the metrics either."""
    return [keras.ops.where(share > 0, new, old) for new, old in zip(metrics, before, strict=False)]


def _on_asked(step: Step) -> Step:
    def on_asked(*state_and_data: Keras) -> Keras:
        *state, data = state_and_data  # a state on JAX only
        if not isinstance(data, Asked):
            return step(*state, data)
        result = step(*state, data.data)
        if state:
            outputs, new_state = result
            return (outputs, data.place), new_state
        return result, data.place

    return on_asked
