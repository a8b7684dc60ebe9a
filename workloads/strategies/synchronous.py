"""A custom training loop for one process, MirroredStrategy and MultiWorkerMirroredStrategy.

Keras 3's `fit` does not work with MultiWorkerMirroredStrategy (https://github.com/keras-team/keras/issues/20585).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import tensorflow as tf
from checkpoint import stop
from steps import compute_means, evaluate, make_test_step

import hpcrun.run

if TYPE_CHECKING:
    from steps import Training


def train(training: Training) -> dict[str, float]:
    """Train, and return the last metrics; all ranks call this function.

    A stop signal on one rank ends all ranks after the same step, because the ranks sum the signal numbers with the
    metrics.
    """
    args, strategy = training.args, training.strategy
    replica_step, test_step = training.train_step, make_test_step(training.model)

    @tf.function
    def step(batch: tuple[tf.Tensor, tf.Tensor], signal: tf.Tensor) -> tf.Tensor:
        sums = strategy.run(lambda x, y: tf.concat([replica_step(x, y), [signal]], 0), batch)
        return strategy.reduce("SUM", sums, axis=None)  # (4,)

    @tf.function
    def mean(sums: tf.Tensor) -> tf.Tensor:
        """Return the mean of the workers' sums, which is proportional to the total."""
        return strategy.reduce("MEAN", strategy.run(lambda: sums), axis=None)

    def read(epoch: int, steps_done: int) -> tf.distribute.DistributedDataset:
        """Return this worker's batches of an epoch, without the batches trained before a restart."""

        def batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
            size = context.get_per_replica_batch_size(args.batch_size)
            dataset = training.images.batches(size, shard=training.shard, seed=args.seed + epoch)
            return dataset.skip(steps_done * context.num_replicas_in_sync // context.num_input_pipelines)

        return strategy.distribute_datasets_from_function(batches)

    first_epoch, steps_done = training.checkpoint.read()
    metrics: dict[str, float] = {}
    for epoch in range(first_epoch, args.epochs):
        iterator, sums, start_time = iter(read(epoch, steps_done)), tf.zeros(4), time.perf_counter()
        for step_index in range(steps_done, training.steps):
            sums += step(next(iterator), tf.constant(float(hpcrun.run.checkpoint_requested())))
            progress = {"epoch": epoch + 1, "epochs": args.epochs, "step": step_index + 1, "steps": training.steps}
            hpcrun.run.heartbeat(**progress, batch_size=args.batch_size, **compute_means(sums[:3]))
            if sums[3]:
                training.checkpoint.write(epoch, step_index + 1)
                stop(epoch, step_index + 1)
        seconds = time.perf_counter() - start_time
        test_sums = evaluate(test_step, training.validation_images.batches(256, shard=training.shard))
        metrics = compute_means(sums[:3]) | compute_means(mean(test_sums), "val_")
        training.checkpoint.write(epoch + 1, 0)
        rate = float(sums[2]) / seconds
        hpcrun.run.log_metrics(epoch + 1, args.epochs, **metrics, images_per_second=rate, seconds=round(seconds, 3))
        steps_done = 0
    return metrics
