"""Training and test steps for all distribution strategies of TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import keras
import tensorflow as tf

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from checkpoint import Checkpoint
    from networks import Images

    Step = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


@dataclass(frozen=True)
class Training:
    """The objects that a training loop uses.

    Attributes:
        args: The command-line options.
        strategy: The strategy.
        model: The network, created in the strategy's scope.
        optimizer: The optimizer, created in the strategy's scope.
        images: The images for training.
        validation_images: The images for validation.
        shard: The number of workers that share the images, and the index of this worker.
        checkpoint: The checkpoint from which the training continues.
    """

    args: argparse.Namespace
    strategy: tf.distribute.Strategy
    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    images: Images
    validation_images: Images
    shard: tuple[int, int]
    checkpoint: Checkpoint

    @property
    def train_step(self) -> Step:
        """The training step of a replica."""
        return make_train_step(self.model, self.optimizer, self.args.batch_size)

    @property
    def steps(self) -> int:
        """The number of steps in an epoch."""
        return len(self.images.y) // self.args.batch_size


def make_train_step(model: keras.Model, optimizer: keras.optimizers.Optimizer, batch_size: int) -> Step:
    """Return a replica's training step: (images, labels) -> loss sum, correct predictions, images (3,).

    Args:
        model: The model.
        optimizer: The optimizer, which sums the gradients of all synchronized replicas.
        batch_size: The batch size of all synchronized replicas together.
    """
    losses = keras.losses.SparseCategoricalCrossentropy(reduction="none")

    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)  # (batch, classes)
            loss = tf.reduce_sum(losses(y, outputs)) / batch_size
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return tf.stack([loss * batch_size, _count_right(y, outputs), tf.cast(tf.shape(y)[0], tf.float32)])

    return step


def make_test_step(model: keras.Model) -> Step:
    """Return the test step of one process: (images, labels) -> loss sum, correct predictions, images (3,)."""
    losses = keras.losses.SparseCategoricalCrossentropy(reduction="none")

    @tf.function(reduce_retracing=True)
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        outputs = model(x, training=False)  # (batch, classes)
        return tf.stack(
            [tf.reduce_sum(losses(y, outputs)), _count_right(y, outputs), tf.cast(tf.shape(y)[0], tf.float32)]
        )

    return step


def evaluate(step: Step, batches: tf.data.Dataset) -> tf.Tensor:
    """Return the sum of losses, and the numbers of correct predictions and of images, over all batches (3,)."""
    return sum((step(x, y) for x, y in batches), tf.zeros(3))


def compute_means(sums: tf.Tensor, prefix: str = "") -> dict[str, float]:
    """Return loss and accuracy.

    Args:
        sums: The sum of losses, and the numbers of correct predictions and of images (3,).
        prefix: Prefix of the metric names, such as ``val_``.
    """
    loss, right, images = (float(each) for each in sums)
    return {f"{prefix}loss": loss / images, f"{prefix}accuracy": right / images}


def _count_right(y: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """Return the number of samples whose largest output (batch, classes) belongs to their label (batch,)."""
    return tf.reduce_sum(tf.cast(tf.argmax(outputs, axis=1) == tf.cast(y, tf.int64), tf.float32))
