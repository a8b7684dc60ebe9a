"""A custom training loop for ParameterServerStrategy: the chief schedules steps; workers do not wait for each other.

Keras 3's `fit` does not work with ParameterServerStrategy, and Keras 3 does not support partitioned variables
(https://www.tensorflow.org/tutorials/distribute/parameter_server_training#training_with_custom_training_loop).
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import tensorflow as tf
from checkpoint import stop
from control import Chief, Member
from roles import assign, tf_config
from steps import compute_means, evaluate, make_test_step

import hpcrun.run

if TYPE_CHECKING:
    import argparse

    from roles import Role
    from steps import Training


def start_cluster(args: argparse.Namespace, addresses: list[str], rank: int) -> tuple[Role, Chief | Member]:
    """Set this rank's TF_CONFIG, start its server, and connect it to the chief.

    Args:
        args: The options.
        addresses: The host and port of each rank.
        rank: This rank.
    """
    roles = assign(addresses, args.parameter_servers, evaluator=args.evaluator)
    role, host = roles[rank], os.environ["MASTER_ADDR"]
    port = int(os.environ["MASTER_PORT"])
    config = tf_config(addresses, roles, rank, ps_of_chief=f"{host}:{port + 1}")
    os.environ["TF_CONFIG"] = json.dumps(config)
    print(f"rank {rank} is {role}; TF_CONFIG={os.environ['TF_CONFIG']}", flush=True)
    os.environ["GRPC_FAIL_FAST"] = "use_caller"  # as in the tutorial: if a worker is lost, raise an error at once
    cluster = tf.train.ClusterSpec(config["cluster"])
    options = tf.compat.v1.ConfigProto(
        inter_op_parallelism_threads=len(addresses) + 2
    )  # without this option, remote calls would wait for each other
    if role.job == "chief":
        if not args.parameter_servers:
            _SERVERS.append(tf.distribute.Server(cluster, "ps", 0, protocol="grpc", config=options))
        return role, Chief(port, len(addresses))
    if role.job != "evaluator":
        _SERVERS.append(tf.distribute.Server(cluster, role.job, role.index, protocol="grpc", config=options))
    return role, Member((host, port))


_SERVERS: list[tf.distribute.Server] = []  # keep a reference: the server stops when its object is deleted


def train(training: Training, chief: Chief) -> dict[str, float]:
    """Train, and return the last metrics; only the chief calls this.

    A stop signal ends the training on the chief, which then ends all other ranks; the other ranks ignore the signal.
    """
    args, strategy = training.args, training.strategy
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    replica_step, test_step = training.train_step, make_test_step(training.model)

    @tf.function
    def step(iterator: tf.data.Iterator) -> tf.Tensor:
        return strategy.run(replica_step, next(iterator))  # (3,)

    @tf.function
    def batches() -> tf.data.Dataset:  # each worker shuffles in a different order
        seed = tf.random.uniform((), maxval=2**31, dtype=tf.int64)
        return training.images.batches(args.batch_size, seed=seed).repeat()

    iterator = iter(coordinator.create_per_worker_dataset(batches))
    first, steps_done = training.checkpoint.read()
    metrics: dict[str, float] = {}
    for epoch in range(first, args.epochs):
        results, sums, begin = [], tf.zeros(3), time.perf_counter()
        for number in range(steps_done, training.steps):
            results.append(coordinator.schedule(step, args=(iterator,)))
            if len(results) == MAX_SCHEDULED_STEPS or number == training.steps - 1 or hpcrun.run.checkpoint_requested():
                coordinator.join()
                sums, results = sum((each.fetch() for each in results), sums), []
                progress = {"epoch": epoch + 1, "epochs": args.epochs, "step": number + 1, "steps": training.steps}
                hpcrun.run.heartbeat(**progress, batch_size=args.batch_size, **compute_means(sums))
            if hpcrun.run.checkpoint_requested():
                training.checkpoint.write(epoch, number + 1)
                chief.end_ranks()
                stop(epoch, number + 1)
        seconds = time.perf_counter() - begin
        metrics = compute_means(sums)
        if not args.evaluator:
            metrics |= compute_means(evaluate(test_step, training.validation_images.batches(256)), "val_")
        training.checkpoint.write(epoch + 1, 0)
        rate = float(sums[2]) / seconds
        hpcrun.run.log_metrics(epoch + 1, args.epochs, **metrics, images_per_second=rate, seconds=round(seconds, 3))
        steps_done = 0
    return metrics


MAX_SCHEDULED_STEPS = 32  # maximum number of scheduled steps whose results are not fetched yet


def follow(training: Training, chief: Member) -> None:
    """Validate each checkpoint until the training is over; only the evaluator calls this."""
    test_step, last, is_done = make_test_step(training.model), 0, False
    metrics: dict[str, float] = {}
    while not is_done:
        # query before reading a checkpoint: the chief writes the last checkpoint before it reports the end
        is_done = chief.is_done(seconds=0.5)
        epoch, _ = training.checkpoint.read()
        if epoch > last:
            metrics, last = compute_means(evaluate(test_step, training.validation_images.batches(256)), "val_"), epoch
            metric_texts = [f"{name} {value:.4f}" for name, value in metrics.items()]
            print(f"evaluator: epoch {epoch}", *metric_texts, sep="  ", flush=True)
    chief.leave(**metrics)
