"""Training, evaluation and prediction of a batch by a stage of a pipeline, as functions that Keras's loops call."""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from hpcrun.run.waiting import waiting
from hpcrun.train.data.shards import PredictShard, Shard, first_rank_with_samples
from hpcrun.train.pipeline.messages import BACKWARD, FORWARD, WAIT
from hpcrun.train.pipeline.schedule import Action, actions
from hpcrun.train.pipeline.tensorflow_stage import MicroBatch
from hpcrun.train.ranks.polling import poll

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from hpcrun.train.pipeline.layout import Layout
    from hpcrun.train.pipeline.messages import Messages
    from hpcrun.train.pipeline.stage_optimizer import StageOptimizer
    from hpcrun.train.pipeline.tensorflow_stage import StagePart, TensorFlowStage
    from hpcrun.train.types import Data, Keras

    Array = np.ndarray[Any, Any]


class StageSteps:
    """The steps of this rank's stage.

    Args:
        layout: This rank's place.
        stage: The passes of the stage.
        messages: The messages to and from its neighbours.
        micro_batches: Number of micro-batches of a replica's shard of a batch.
        schedule: Name of the schedule.

    Attributes:
        optimizer: The steps of the optimizer; set by `Pipeline.compile`.
        samples_seen: Variable that counts the samples of all replicas.
        last_activity: What this rank began last, for messages about ranks that hang.
    """

    optimizer: StageOptimizer

    def __init__(
        self, layout: Layout, stage: TensorFlowStage, messages: Messages, micro_batches: int, schedule: str
    ) -> None:
        self.layout, self.stage, self.messages = layout, stage, messages
        self.micro_batches, self.schedule = micro_batches, schedule
        self.samples_seen: keras.Variable | None = None
        self.last_activity = ""
        self._steps = 0
        self._metric_shapes: dict[str, tuple[int, ...]] = {}

    def compile(self, part: StagePart) -> None:
        """Forget the last `compile`.

        Args:
            part: What the stage computes, with the weights that are trainable now.
        """
        self.stage.compile(part)
        self._metric_shapes = {}

    def train(self, shard: Shard | Data) -> dict[str, Data]:
        """Train on this replica's shard of a batch, and return the metrics of the replica. Collective."""
        batches, counts = self._split(shard)
        self._steps += 1
        signatures = [_signature(batch) for batch in batches]
        plan = _plan(self.schedule, self.layout.stages, len(batches), self.layout.stage)
        for action, following in zip(plan, [*plan[1:], None], strict=True):
            number = action.micro_batch
            signature = signatures[number]
            if action.is_forward:
                received = self._receive(FORWARD, number, signature)
                self._post(following, signatures)
                self.last_activity = f"the forward pass of micro-batch {number} of training step {self._steps}"
                sent = self.stage.forward(number, batches[number], received, counts=counts)
                if sent is not None:
                    self.messages.send(FORWARD, number, signature, sent)
            else:
                gradients = self._receive(BACKWARD, number, signature)
                self._post(following, signatures)
                self.last_activity = f"the backward pass of micro-batch {number} of training step {self._steps}"
                sent = self.stage.backward(number, gradients, counts=counts)
                if self.layout.stage > 0:
                    self.messages.send(BACKWARD, number, signature, sent)
        self.messages.finish()
        share = float(batches[0].share / batches[0].weight)
        self.last_activity = f"the update of the weights in training step {self._steps}"
        self.optimizer.step(share)
        if self.samples_seen is not None and counts:
            samples = sum(int(first_rank_with_samples(batch.data).shape[0]) for batch in batches)
            self.samples_seen.assign_add(samples / share)
        return self._share_logs()

    def test(self, shard: Shard | Data) -> dict[str, Data]:
        """Evaluate this replica's shard of a batch, or a batch of its own; return the metrics.

        The metrics of a shard are those of this stage, which the end of the evaluation sums up; all stages return those
        of a batch of its own.
        """
        batches, counts = self._split(shard)
        self._forward(batches, lambda batch, received: self.stage.test(batch, received, counts=counts))
        if not isinstance(shard, Shard):
            return self._share_logs()
        return self.stage.logs() if self.layout.is_last else self._own_metrics()

    def predict(self, data: PredictShard | Data) -> Data:
        """Predict this replica's shard of a batch; stages other than the last return no samples."""
        is_shard = isinstance(data, PredictShard)
        x = keras.utils.unpack_x_y_sample_weight(data.data if is_shard else data)[0]
        batches, _ = self._split((x,))
        parts = self._forward(batches, self.stage.predict)
        if self.layout.is_last:
            outputs = keras.tree.map_structure(lambda *tensors: tf.concat(tensors, 0), *parts)
        else:
            outputs = keras.tree.map_structure(
                lambda t: tf.zeros([0, *(d or 0 for d in t.shape[1:])], t.dtype), self._outputs()
            )
        if not is_shard:
            return outputs
        return outputs, data.positions if self.layout.is_last else data.positions[:0]

    def _forward(
        self, batches: Sequence[MicroBatch], function: Callable[[MicroBatch, Sequence[Data]], Data]
    ) -> list[Data]:
        results = []
        for number, batch in enumerate(batches):
            signature = ("forward only", _signature(batch))
            received = self._receive(FORWARD, number, signature)
            self.last_activity = f"the forward pass of micro-batch {number} without training"
            result = function(batch, received)
            if self.layout.is_last:
                results.append(result)
            else:
                self.messages.send(FORWARD, number, signature, result)
        self.messages.finish()
        return results

    def _outputs(self) -> Data:
        model = self.stage.model
        return model.outputs[0] if isinstance(model, keras.Sequential) else model.output

    def _split(self, shard: Shard | Data) -> tuple[list[MicroBatch], bool]:
        """Divide a shard into micro-batches; return these, and whether their samples are real."""
        if isinstance(shard, Shard):
            data, share = shard.data, float(shard.share)
        else:
            data, share = shard, 1 / self.layout.replica.size
        samples = int(first_rank_with_samples(data).shape[0])
        sizes = micro_batch_sizes(samples, self.micro_batches)
        parts = zip(*(_split_leaf(leaf, sizes) for leaf in keras.tree.flatten(data)), strict=True)
        batches = [
            MicroBatch(
                keras.tree.pack_sequence_as(data, part), _constant(share * size / samples), _constant(size / samples)
            )
            for size, part in zip(sizes, parts, strict=True)
        ]
        return batches, share > 0

    def _receive(self, direction: int, number: int, signature: Hashable) -> Sequence[Data]:
        stage = self.layout.stage
        has_source = stage > 0 if direction == FORWARD else not self.layout.is_last
        return self.messages.receive(direction, number, signature) if has_source else []

    def _post(self, action: Action | None, signatures: Sequence[Hashable]) -> None:
        """Post the receive of the next action, so that its message can arrive during this one."""
        if action is None:
            return
        direction = FORWARD if action.is_forward else BACKWARD
        if self.layout.stage > 0 if action.is_forward else not self.layout.is_last:
            self.messages.post(direction, action.micro_batch, signatures[action.micro_batch])

    def _own_metrics(self) -> dict[str, Array]:
        return {name: np.asarray(value) for name, value in self.stage.model.get_metrics_result().items()}

    def _share_logs(self) -> dict[str, Data]:
        """Return the metrics of the last stage on all stages of the replica."""
        logs = self.stage.logs() if self.layout.is_last else {}
        if not self._metric_shapes:
            self._metric_shapes = {name: value.shape for name, value in self._own_metrics().items()}
        sizes = [int(np.prod(shape)) for shape in self._metric_shapes.values()]
        values = np.zeros(sum(sizes))
        if logs:
            values[:] = np.concatenate([np.ravel(logs[name]) for name in self._metric_shapes])
        with waiting(WAIT, "the metrics of the last stage"):
            poll(self.layout.pipeline.Ibcast(values, self.layout.stages - 1).Test, 5e-4)
        parts = np.split(values, np.cumsum(sizes)[:-1])
        return {
            name: part.reshape(shape)[()]
            for (name, shape), part in zip(self._metric_shapes.items(), parts, strict=True)
        }


def micro_batch_sizes(samples: int, micro_batches: int) -> list[int]:
    """Return the sizes of micro-batches, which differ by at most 1; fewer micro-batches if there are fewer samples."""
    count = min(samples, micro_batches)
    return [samples // count + (number < samples % count) for number in range(count)]


def make_functions(model: keras.Model, steps: StageSteps) -> None:
    """Let Keras's loops call the steps of a stage.

    Args:
        model: The Keras model, changed in place before `wrap_steps`.
        steps: The steps of this rank's stage.
    """

    def over_batches(step: Callable[[Data], Keras]) -> Callable[[Iterator[Data]], Keras]:
        def function(iterator: Iterator[Data]) -> Keras:
            batches = list(islice(iterator, model.steps_per_execution))
            if not batches:
                raise StopIteration
            with _stage_in_errors(steps.layout):
                return [step(batch) for batch in batches][-1]

        return function

    def predict_batches(batches: Sequence[Data]) -> Data:
        with _stage_in_errors(steps.layout):
            outputs = [steps.predict(batch) for batch in batches]
        return keras.tree.map_structure(lambda *tensors: tf.concat(tensors, 0), *outputs)

    _set_function(model, "train_function", over_batches(steps.train))
    _set_function(model, "test_function", over_batches(steps.test))
    _set_function(model, "predict_function", predict_batches)


@contextmanager
def _stage_in_errors(layout: Layout) -> Iterator[None]:
    """Add the stage to the traceback of an error."""
    try:
        yield
    except Exception as error:
        error.add_note(f"on {layout.describe(layout.rank_of(layout.stage))}")
        raise


def _set_function(model: keras.Model, name: str, function: Callable[[Data], Keras]) -> None:
    """Let `make_train_function`, for example, set a function as `train_function`."""

    def make(force: bool = False) -> None:
        if force or getattr(model, name) is None:
            setattr(model, name, function)

    setattr(model, f"make_{name}", make)


@lru_cache(maxsize=64)
def _plan(schedule: str, stages: int, micro_batches: int, stage: int) -> tuple[Action, ...]:
    return tuple(actions(schedule, stages, micro_batches, stage))


def _split_leaf(leaf: Data, sizes: Sequence[int]) -> Sequence[Data]:
    return [None] * len(sizes) if leaf is None else tf.split(leaf, sizes)


@lru_cache
def _constant(value: float) -> tf.Tensor:
    return tf.constant(value, "float32")


def _signature(batch: MicroBatch) -> Hashable:
    leaves = keras.tree.flatten(batch.data)
    return tuple((tuple(leaf.shape), str(leaf.dtype)) for leaf in leaves if leaf is not None)
