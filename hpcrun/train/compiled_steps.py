"""Training steps of TensorFlow whose forward and backward pass XLA compiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.run.job import print_line
from hpcrun.train.data.batch_share import use_share
from hpcrun.train.gradients.embedding_lookups import EmbeddingLookups
from hpcrun.train.gradients.optimizer import CapturedStep, capture_gradients
from hpcrun.train.gradients.sparse import is_sparse
from hpcrun.train.losses import scale_losses
from hpcrun.train.ranks.world import world
from hpcrun.train.steps import accept_shards

if TYPE_CHECKING:
    import keras

    from hpcrun.train.data.shards import Shard
    from hpcrun.train.types import Data, Keras


def compile_step(model: keras.Model) -> None:
    """Compile the forward and backward pass of a TensorFlow model's training step with XLA, without the allreduce.

    XLA cannot compile the allreduce, which calls MPI from Python, so the compiled part ends with the gradients. A step
    is not compiled if it takes several optimizer steps, or communicates before it has the gradients.

    Args:
        model: A model after `wrap_steps`, compiled with `jit_compile=True`; changed in place.
    """
    import tensorflow as tf

    model.jit_compile = False  # without this setting, Keras would compile the whole step
    step = model.train_step.inner
    if hasattr(step, "python_function"):  # gradients inside the graph of a tf.function are not accessible
        if world().rank == 0:
            print_line("INFO: jit_compile is off: the train_step is a tf.function")
        restore_step(model)
        return
    captured: list[CapturedStep] = []

    @tf.function(jit_compile=True, reduce_retracing=True, autograph=False)  # type: ignore[untyped-decorator]  # tensorflow is untyped
    def forward_backward(data: Data, share: Data) -> tuple[Keras, list[Data]]:
        with use_share(share), scale_losses(model), capture_gradients() as steps:
            logs = step(data)
        captured[:] = steps
        present_gradients = [g for captured_step in steps for g in captured_step.gradients if g is not None]
        return logs, [g.slices if is_sparse(g) else tf.convert_to_tensor(g) for g in present_gradients]

    def train_step(shard: Shard) -> Keras:
        reason = "XLA needs a train_step with exactly one optimizer step"
        try:
            forward_backward.get_concrete_function(shard.data, shard.share)  # trace the step, which sets `captured`
        except HpcrunError as error:
            reason = error.message
            captured.clear()
        if len(captured) != 1:
            if world().rank == 0:
                print_line(f"INFO: jit_compile is off: {reason}")
            return step(shard.data)
        logs, dense = forward_backward(shard.data, shard.share)
        present_gradients, (captured_step,) = iter(dense), captured
        gradients: list[Data] = [g if g is None else next(present_gradients) for g in captured_step.gradients]
        for number, gradient in enumerate(captured_step.gradients):
            if is_sparse(gradient):
                gradients[number] = EmbeddingLookups(gradients[number], gradient.once_per_batch)
        captured_step.optimizer.apply(gradients, captured_step.variables)
        return logs

    model.train_step = accept_shards(model, train_step, takes_shard=True, is_training=True)
    model.train_step.inner = step
    model.train_function = None


def restore_step(model: keras.Model) -> None:
    """Undo `compile_step`, so that the training step runs without XLA."""
    model.train_step = accept_shards(model, model.train_step.inner, is_training=True)
    model.train_function = None
