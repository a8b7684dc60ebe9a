"""Benchmark of training steps with different kinds of communication, alternately in one group of ranks.

    mpiexec -n 2 python benchmarks/training/steps.py resnet50 none bare:2048 hpcrun mwms --rounds 30

Rank 0 prints one line of JSON. The variants are

    none        a step without communication
    bare:KB     no step: MPI_Allreduce of as many bytes as the gradients have, in chunks of KB (0: in one)
    hpcrun      a step with hpcrun.train.Optimizer, which reads its settings from the environment
    mwms        a step under MultiWorkerMirroredStrategy (gRPC, RING)
    mirrored:N  a step of N batches under MirroredStrategy with N replicas, in one process with N threads
    horovod     a step with hvd.grouped_allreduce; only without hpcrun. horovod:fp16 compresses the gradients to fp16
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import socket
import time
from functools import cached_property
from typing import TYPE_CHECKING

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from mpi4py import MPI

if TYPE_CHECKING:
    from collections.abc import Callable

    import keras
    import tensorflow as tf

    Step = Callable[[], object]
    Gradients = list[tf.Tensor]


class StepVariants:
    """The training steps of all variants.

    Args:
        name: The name of the network.
        variants: The variants to measure; this class starts strategies and communication libraries, which must precede
            TensorFlow's first tensor.
    """

    def __init__(self, name: str, variants: list[str]) -> None:
        self.comm = MPI.COMM_WORLD
        if "hpcrun" in variants:
            import hpcrun.train

            hpcrun.train.init()
        import tensorflow as tf

        if "hpcrun" not in variants:
            tf.config.threading.set_intra_op_parallelism_threads(1)
            tf.config.threading.set_inter_op_parallelism_threads(1)
        for variant in (each for each in variants if each.startswith("mirrored")):
            _split_cpu(int(variant.partition(":")[2]))
        if "mwms" in variants:
            self.strategy = _strategy(self.comm)
        from networks import NETWORKS

        self.network = NETWORKS[name]
        self.x, self.y = map(tf.constant, self.network.data(self.network.batch, seed=self.comm.rank))

    def model(self) -> tuple[keras.Model, keras.optimizers.Optimizer]:
        """Return a new network for a variant, equal on all ranks, and its optimizer."""
        import keras

        keras.utils.set_random_seed(1)
        model, optimizer = self.network.build(), keras.optimizers.SGD(0.001, momentum=0.9)
        optimizer.build(model.trainable_variables)
        return model, optimizer

    @cached_property
    def values(self) -> int:
        """The number of values in the gradients."""
        return sum(int(np.prod(v.shape)) for v in self.network.build().trainable_variables)

    def step(
        self, model: keras.Model, optimizer: keras.optimizers.Optimizer, reduce: Callable[[Gradients], Gradients] = list
    ) -> Step:
        """Return one step of a custom training loop, as in Keras's guide.

        Args:
            model: The model.
            optimizer: The model's optimizer.
            reduce: A function that is applied to the gradients.
        """
        import keras
        import tensorflow as tf

        loss = keras.losses.SparseCategoricalCrossentropy(reduction="sum")

        def step() -> None:
            with tf.GradientTape() as tape:
                value = loss(self.y, model(self.x, training=True)) / self.network.batch
            gradients = reduce(tape.gradient(value, model.trainable_variables))
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        return step

    def none(self) -> Step:
        """Return a step without communication."""
        import tensorflow as tf

        return tf.function(self.step(*self.model()))

    def hpcrun(self) -> Step:
        """Return a step with an hpcrun.train.Optimizer."""
        import tensorflow as tf

        import hpcrun.train

        model, optimizer = self.model()
        return tf.function(self.step(model, hpcrun.train.Optimizer(optimizer)))

    def mwms(self) -> Step:
        """Return a step under MultiWorkerMirroredStrategy."""
        import tensorflow as tf

        with self.strategy.scope():
            step = self.step(*self.model())
        return tf.function(lambda: self.strategy.run(step))

    def mirrored(self, replicas: str) -> Step:
        """Return a step under MirroredStrategy.

        Args:
            replicas: The number of replicas; each is a logical device of the CPU.
        """
        import tensorflow as tf

        devices = [device.name for device in tf.config.list_logical_devices("CPU")]
        strategy = tf.distribute.MirroredStrategy(devices[: int(replicas)])
        with strategy.scope():
            step = self.step(*self.model())
        return tf.function(lambda: strategy.run(step))

    def horovod(self, compression: str = "none") -> Step:
        """Return a step with Horovod's allreduce of all gradients as one group.

        Args:
            compression: The name of one of Horovod's compressors: none or fp16.
        """
        import horovod.tensorflow as hvd
        import tensorflow as tf

        hvd.init()
        options = {"op": hvd.Average, "compression": getattr(hvd.Compression, compression)}
        return tf.function(self.step(*self.model(), lambda gradients: hvd.grouped_allreduce(gradients, **options)))

    def bare(self, kilobytes: str) -> Step:
        """Return an MPI_Allreduce of as many bytes as the gradients have.

        Args:
            kilobytes: The size of a chunk; 0 for one chunk.
        """
        memory = np.full(self.values, 0.0, np.float32)
        size = int(kilobytes) * 1024 // 4 or self.values
        chunks = [memory[start : start + size] for start in range(0, self.values, size)]

        def step() -> None:
            for chunk in chunks:
                self.comm.Allreduce(MPI.IN_PLACE, chunk)

        return step

    def variant(self, name: str) -> Step:
        """Return the step of a variant."""
        kind, *argument = name.split(":")
        return getattr(self, kind)(*argument)


def _split_cpu(parts: int) -> None:
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(parts)
    configuration = [tf.config.LogicalDeviceConfiguration()] * parts
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], configuration)


def _strategy(comm: MPI.Comm) -> tf.distribute.Strategy:
    import tensorflow as tf

    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    workers = comm.allgather(f"{platform.node()}:{port}")
    cluster = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": comm.rank}}
    os.environ["TF_CONFIG"] = json.dumps(cluster)
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def measure(comm: MPI.Comm, steps: dict[str, Step], rounds: int) -> dict[str, list[float]]:
    """Return the seconds from the common start of a step to its end on the last rank, for every variant and round.

    Args:
        comm: The communicator of the ranks.
        steps: The steps of the variants.
        rounds: The number of rounds; the order of steps is random in each round, because a step leaves data in the
            cache.
    """
    for step in [*steps.values()] * 2:  # run each step twice first: TensorFlow traces and allocates memory
        step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    order = random.Random(1)  # the same order on all ranks
    for _ in range(rounds):
        for name in order.sample(list(steps), len(steps)):
            comm.Barrier()
            begin = time.perf_counter()
            steps[name]()
            comm.Barrier()
            times[name].append(time.perf_counter() - begin)
    return times


def main() -> None:
    """Run the benchmark that the command line selects."""
    parser = argparse.ArgumentParser(description="Benchmark training steps with different kinds of communication.")
    parser.add_argument("network")
    parser.add_argument("variants", nargs="+")
    parser.add_argument("--rounds", type=int, default=30)
    args = parser.parse_args()
    steps = StepVariants(args.network, args.variants)
    times = measure(steps.comm, {name: steps.variant(name) for name in args.variants}, args.rounds)
    if steps.comm.rank == 0:
        print(json.dumps({"values": steps.values, "batch": steps.network.batch, "times": times}), flush=True)


if __name__ == "__main__":
    main()
