"""Forward and backward passes of a stage on TensorFlow.

A forward pass is a `tf.function` under a gradient tape, which keeps the activations until the backward pass.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.layers.layer import CallContext  # Keras does not export it

from hpcrun.train.any_batch_size import compile_for_any_batch_size
from hpcrun.train.data.batch_share import use_share
from hpcrun.train.losses import scale_losses
from hpcrun.train.pipeline.eager_functions import refuse_eager_functions
from hpcrun.train.pipeline.gradient_sums import GradientSums
from hpcrun.train.pipeline.graph import compute
from hpcrun.train.rank_random import use_rank_seeds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpcrun.train.pipeline.graph import Call, Graph
    from hpcrun.train.types import Data


class MicroBatch(NamedTuple):
    """A part of a replica's shard of a batch.

    Attributes:
        data: x, (x, y) or (x, y, sample_weight); first axis b_m.
        share: b_m / B, its share of the batch.
        weight: b_m / b_r, its share of the replica's shard.
    """

    data: Data
    share: Data
    weight: Data


class StagePart(NamedTuple):
    """The part of a model that a stage computes.

    Attributes:
        graph: The calls of the model.
        calls: The calls of the stage.
        received: The tensors that come from the previous stage.
        sent: The tensors that go to the next stage.
        is_last: Whether the stage computes the loss.
        held: The number of micro-batches between their forward and backward passes at the same time.
        trainable: The trainable variables of the stage.
        frozen: Its other variables.
    """

    graph: Graph
    calls: Sequence[Call]
    received: Sequence[keras.KerasTensor]
    sent: Sequence[keras.KerasTensor]
    is_last: bool
    held: int
    trainable: Sequence[keras.Variable]
    frozen: Sequence[keras.Variable]


class _Held(NamedTuple):
    """A micro-batch between its forward and its backward pass; the tape is None if the forward pass is repeated."""

    batch: MicroBatch
    received: list[tf.Tensor]
    tape: Any
    sources: list[tf.Tensor]
    targets: list[tf.Tensor]
    seeds: list[tf.Tensor] | None
    state: list[tf.Tensor]


class TensorFlowStage:
    """The passes of one stage.

    Args:
        part: What the stage computes.
        recompute: Whether to keep only the inputs of a micro-batch, and repeat the forward pass in the backward pass.

    Attributes:
        sums: The gradients of the micro-batches of a step, to which the backward passes add.
    """

    def __init__(self, part: StagePart, *, recompute: bool) -> None:
        self.part, self.model, self.recompute = part, part.graph.model, recompute
        self.sums = GradientSums(part.trainable)
        self._held: dict[int, _Held] = {}
        self._logs: dict[str, Data] = {}
        self._functional = part.graph.functional
        self._functions: dict[str, Any] = {}
        self._zero_loss, self._token = tf.zeros(()), tf.zeros(())

    def compile(self, part: StagePart) -> None:
        """Drop the traced functions, because loss, metrics, optimizer or trainable weights have changed.

        Args:
            part: What the stage computes, with the weights that are trainable now.
        """
        self.part, self.sums, self._functions = part, GradientSums(part.trainable), {}

    def forward(
        self, number: int, batch: MicroBatch, received: Sequence[Data], *, counts: bool = True
    ) -> list[tf.Tensor] | None:
        """Compute the forward pass of a micro-batch for training; return what the next stage needs.

        Args:
            number: Number of the micro-batch.
            batch: The micro-batch.
            received: What the previous stage sent: its tensors, and the sum of the losses of earlier layers.
            counts: Whether the samples count in the metrics; no if they are placeholders.
        """
        tensors = [tf.convert_to_tensor(data) for data in received] or [self._zero_loss]
        if self.recompute and self.part.is_last:
            self._held[number] = _Held(batch, tensors, None, [], [], None, [])
            return None
        if self.recompute:
            state = [tf.identity(variable.value) for variable in self.part.frozen]
            results = self._function("train", counts=counts)(*batch, tensors, self._token)
            self._held[number] = _Held(batch, tensors, None, [], [], None, state)
            return list(results)
        self._held[number] = held = self._forward_with_tape(batch, tensors, counts=counts)
        return None if self.part.is_last else held.targets

    def backward(self, number: int, gradients: Sequence[Data] | None, *, counts: bool = True) -> list[tf.Tensor]:
        """Compute the backward pass of a micro-batch; return what the previous stage needs.

        Args:
            number: Number of the micro-batch.
            gradients: What the next stage sent: gradients of the float tensors and of the losses that it got.
            counts: As for `forward`.
        """
        held = self._held.pop(number)
        if held.tape is None:
            with self._restored(held.state):
                held = self._forward_with_tape(held.batch, held.received, counts=counts)
        targets = [tensor for tensor in held.targets if tensor.dtype.is_floating]
        seeds = held.seeds or [tf.convert_to_tensor(data) for data in gradients or ()]
        results = held.tape.gradient(targets, held.sources, output_gradients=seeds)
        sources = zip(results[1:], held.sources[1:], strict=True)
        return [tf.zeros_like(s) if g is None else tf.convert_to_tensor(g) for g, s in sources]

    def test(self, batch: MicroBatch, received: Sequence[Data], *, counts: bool = True) -> list[tf.Tensor] | None:
        """Compute the forward pass of a micro-batch for evaluation; return what the next stage needs."""
        tensors = [tf.convert_to_tensor(data) for data in received] or [self._zero_loss]
        results = self._function("test", counts=counts)(*batch, tensors, self._token)
        if self.part.is_last:
            self._logs = results[2]
            return None
        return list(results)

    def predict(self, batch: MicroBatch, received: Sequence[Data]) -> list[tf.Tensor] | Data:
        """Compute the forward pass of a micro-batch to predict; return the outputs, or what the next stage needs."""
        tensors = [tf.convert_to_tensor(data) for data in received] or [self._zero_loss]
        results = self._function("predict")(*batch, tensors, self._token)
        return results if self.part.is_last else list(results)

    def logs(self) -> dict[str, Data]:
        """Return the metrics after the last micro-batch; only of the last stage."""
        return self._logs

    def _forward_with_tape(self, batch: MicroBatch, tensors: list[tf.Tensor], *, counts: bool) -> _Held:
        sources = [self._token, *(tensor for tensor in tensors if tensor.dtype.is_floating)]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for source in sources:
                tape.watch(source)
            results = self._function("train", counts=counts)(*batch, tensors, self._token)
        if self.part.is_last:
            loss, seed, self._logs = results
            return _Held(batch, tensors, tape, sources, [loss], [seed], [])
        return _Held(batch, tensors, tape, sources, results, None, [])

    @contextmanager
    def _restored(self, state: list[tf.Tensor]) -> Iterator[None]:
        """Context manager that repeats a forward pass with the seeds and statistics of the first time."""
        latest = [tf.identity(variable.value) for variable in self.part.frozen] if state else []
        for variable, value in zip(self.part.frozen, state, strict=bool(state)):
            variable.assign(value)
        yield
        for variable, value in zip(self.part.frozen, latest, strict=bool(state)):
            variable.assign(value)

    def _function(self, mode: str, *, counts: bool = True) -> Any:
        key = f"{mode} {counts}"
        if key not in self._functions:

            def run(data: Data, share: Data, weight: Data, received: list[Data], token: Data) -> Any:
                with use_rank_seeds():
                    return self._run(mode, MicroBatch(data, share, weight), received, token, counts=counts)

            self._functions[key] = compile_for_any_batch_size(run)
        return self._functions[key]

    def _run(self, mode: str, batch: MicroBatch, received: list[Data], token: Data, *, counts: bool) -> Any:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch.data)
        inputs = self._functional._standardize_inputs(x)  # noqa: SLF001
        graph = self.part.graph
        values = {id(tensor): value for tensor, value in zip(graph.inputs, inputs, strict=True)}
        values |= {id(tensor): value for tensor, value in zip(self.part.received, received[:-1], strict=True)}
        values, losses = (self._compute_trainable if mode == "train" else self._compute)(values, token)
        losses.append(received[-1])  # the sum of the losses of earlier layers
        if mode == "train" and self.part.held > 1 and not self.recompute:
            refuse_eager_functions(self.part.calls)
        if not self.part.is_last:
            total = tf.add_n([tf.cast(tf.reduce_sum(loss), "float32") for loss in losses])
            return [*(values[id(tensor)] for tensor in self.part.sent), total]
        outputs = [values[id(tensor)] for tensor in graph.outputs]
        y_pred = keras.tree.pack_sequence_as(self._functional._outputs_struct, outputs)  # noqa: SLF001
        if isinstance(y_pred, list) and len(y_pred) == 1:  # as Keras's functional models do
            (y_pred,) = y_pred
        if mode == "predict":
            return y_pred
        with use_share(batch.share), scale_losses(self.model, in_micro_batches=True):
            return self._loss(batch, (x, y, sample_weight), y_pred, losses, counts=counts)

    def _loss(
        self, batch: MicroBatch, data: tuple[Data, ...], y_pred: Data, losses: list[Data], *, counts: bool
    ) -> Any:
        """Return the loss, its weight in the gradient, and the metrics, which count the samples."""
        model, (x, y, sample_weight) = self.model, data
        compiled_loss = model._compile_loss  # noqa: SLF001
        if compiled_loss is not None and (loss := compiled_loss(y, y_pred, sample_weight)) is not None:
            losses.insert(0, loss)
        dtype = losses[0].dtype
        total = tf.add_n([tf.cast(tf.reduce_sum(loss), dtype) for loss in losses])
        samples = tf.shape(next(leaf for leaf in keras.tree.flatten(x) if leaf is not None))[0]
        if counts:
            model._loss_tracker.update_state(total, sample_weight=samples)  # noqa: SLF001
            logs = model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
        else:
            logs = model.get_metrics_result()
        weight = tf.cast(batch.weight, dtype)
        return total, model.optimizer.scale_loss(weight) if model.optimizer is not None else weight, logs

    def _compute_trainable(self, values: dict[int, Data], token: Data) -> tuple[dict[int, Data], list[Data]]:
        """Compute the calls so that gradients of the weights reach the sums."""
        with keras.StatelessScope(
            self.sums.weight_values(token), collect_losses=True, initialize_variables=False
        ) as scope:
            results = self._compute(values, token, training=True)
        for variable in self.part.frozen:  # such as moving statistics and seeds
            new_value = scope.get_current_value(variable)
            if new_value is not None:
                variable.assign(new_value)
        return results

    def _compute(
        self, values: dict[int, Data], _: Data, *, training: bool = False
    ) -> tuple[dict[int, Data], list[Data]]:
        """Compute the calls; return the values of all tensors, and the losses of the layers."""
        layers = {id(c.operation): c.operation for c in self.part.calls if isinstance(c.operation, keras.layers.Layer)}
        with _one_call(training=training):
            for layer in layers.values():
                layer._clear_losses()  # noqa: SLF001
            values = compute(self.part.graph, self.part.calls, values, training=training)
            losses = [loss for layer in layers.values() for loss in layer.losses]
        return values, losses


@contextmanager
def _one_call(*, training: bool) -> Iterator[None]:
    """Context manager in which layers are called as if by one model, so that they keep the losses of earlier calls."""
    context = CallContext(entry_layer=object())
    context.set_value("training", training)
    outer = global_state.get_global_attribute("current_call_ctx")
    global_state.set_global_attribute("current_call_ctx", context)
    try:
        yield
    finally:
        global_state.set_global_attribute("current_call_ctx", outer)
