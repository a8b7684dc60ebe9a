"""Benchmark of training steps under ParameterServerStrategy: a chief, which holds the variables, and workers.

    PORTS=7001,7002,7003,7004 DONE=/tmp/done mpiexec -n 3 python benchmarks/training/ps_steps.py lenet5 --rounds 30

A round is one step of each worker. The chief, rank 0, prints one line of JSON. PORTS contains one port more than there
are ranks. The chief creates the file DONE at the end, because the workers' servers run until they are stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["GRPC_FAIL_FAST"] = "use_caller"

import keras
import tensorflow as tf
from networks import NETWORKS


def start_server(rank: int, ports: list[str]) -> tuple[tf.train.ClusterSpec, tf.distribute.Server]:
    """Start the server of a worker, or the server of the variables in the chief's process."""
    chief, variables, *workers = (f"127.0.0.1:{port}" for port in ports)
    cluster = tf.train.ClusterSpec({"chief": [chief], "ps": [variables], "worker": workers})
    threads = tf.compat.v1.ConfigProto(
        inter_op_parallelism_threads=len(ports) + 2, intra_op_parallelism_threads=1
    )  # with fewer threads, remote calls wait for each other
    job, index = ("worker", rank - 1) if rank else ("ps", 0)
    return cluster, tf.distribute.Server(cluster, job, index, protocol="grpc", config=threads)


def measure(name: str, cluster: tf.train.ClusterSpec, rounds: int) -> list[float]:
    """Return the duration of each round in seconds."""
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, task_type="chief", task_id=0)
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    network = NETWORKS[name]
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model, optimizer = network.build(), keras.optimizers.SGD(0.001, momentum=0.9)
        optimizer.build(model.trainable_variables)
    losses = keras.losses.SparseCategoricalCrossentropy(reduction="sum")

    def batches() -> tf.data.Dataset:
        x, y = network.data(network.batch, seed=0)
        return tf.data.Dataset.from_tensors((x, y)).cache().repeat()

    def replica_step(x: tf.Tensor, y: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            value = losses(y, model(x, training=True)) / network.batch
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    @tf.function
    def step(iterator: tf.data.Iterator) -> None:
        strategy.run(replica_step, next(iterator))

    iterator = iter(coordinator.create_per_worker_dataset(tf.function(batches)))
    times = []
    for number in range(rounds + 2):
        begin = time.perf_counter()
        for _ in cluster.as_dict()["worker"]:
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()
        if number >= 2:  # do not count the first two rounds: TensorFlow traces and allocates memory
            times.append(time.perf_counter() - begin)
    return times


def main() -> None:
    """Run the benchmark that the command line selects."""
    parser = argparse.ArgumentParser(description="Benchmark training steps with a parameter server.")
    parser.add_argument("network")
    parser.add_argument("--rounds", type=int, default=30)
    args = parser.parse_args()
    rank = int(os.environ["PMI_RANK"])
    cluster, server = start_server(rank, os.environ["PORTS"].split(","))
    if rank == 0:
        print(json.dumps({"times": measure(args.network, cluster, args.rounds)}), flush=True)
        Path(os.environ["DONE"]).touch()
    while not Path(os.environ["DONE"]).exists():
        time.sleep(0.2)
    sys.stdout.flush()
    del server
    os._exit(0)


if __name__ == "__main__":
    main()
