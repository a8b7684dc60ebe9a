"""Benchmark of the training steps of a model of equal layers in pipeline stages.

    mpiexec -n 4 python benchmarks/training/pipeline_steps.py --stages 4 --micro-batches 8 --work sleep --rounds 10

Rank 0 prints one line of JSON: seconds of each step, seconds in which one process computes the gradients of the whole
model for one micro-batch, and each rank's peak memory in bytes in three phases (building and compiling the model, the
first step, later steps). The memory is that above the memory after the training of the same
layers with 8 units, so that TensorFlow, its threads, MPI's buffers and the traced functions do not count. The layers of
`--work dense` are matrix products. Those of `--work sleep` sleep instead of computing, so that stages run at the same
time on a machine with fewer cores than stages, as on accelerators of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import threading
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

import hpcrun.train

PAGE_BYTES = resource.getpagesize()
SMALL_WIDTH = 8


def used_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


class PeakMemory(threading.Thread):
    """A thread that records the largest resident memory, in bytes above that at its start.

    Attributes:
        phases: The peaks of the phases that have ended.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.start_bytes, self.peak_bytes = used_bytes(), 0
        self.phases: list[int] = []
        self.start()

    def end_phase(self) -> None:
        """Begin the next phase."""
        self.phases.append(self.peak_bytes)
        self.peak_bytes = 0

    def run(self) -> None:
        """Look at the memory every 2 ms."""
        while True:
            self.peak_bytes = max(self.peak_bytes, used_bytes() - self.start_bytes)
            time.sleep(0.002)


def sleeping_layer(seconds: float) -> Any:
    """Return a class of layers that sleep, once in the forward and twice as long in the backward pass."""
    import keras
    import tensorflow as tf

    def sleep(x: Any, duration: float) -> Any:
        def wait(value: Any) -> Any:
            time.sleep(duration)
            return value

        return tf.ensure_shape(tf.numpy_function(wait, [x], tf.float32), x.shape)

    @tf.custom_gradient
    def wait(x: Any) -> Any:
        return sleep(x, seconds), lambda gradient: sleep(gradient, 2 * seconds)

    class Sleep(keras.layers.Layer):
        def build(self, input_shape: Any) -> None:
            self.scale = self.add_weight(shape=input_shape[-1:], initializer="ones")

        def call(self, x: Any) -> Any:
            return wait(x * self.scale)

        def compute_output_spec(self, x: Any) -> Any:
            return keras.KerasTensor(x.shape, x.dtype)

    return Sleep


def make_model(options: argparse.Namespace, width: int) -> Any:
    """Return a model of equal layers."""
    import keras

    layers: list[Any] = [keras.Input((width,))]
    if options.work == "sleep":
        sleep = sleeping_layer(options.seconds)
        layers += [sleep(name=f"layer{number}") for number in range(options.layers)]
    else:
        layers += [
            keras.layers.Dense(width, activation="relu", use_bias=False, name=f"layer{number}")
            for number in range(options.layers)
        ]
    return keras.Sequential(layers)


def main() -> None:
    """Measure the steps."""
    parser = argparse.ArgumentParser()
    for name, default in (("stages", 1), ("micro-batches", 8), ("layers", 8), ("width", 64), ("batch", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--work", choices=("sleep", "dense"), default="sleep")
    parser.add_argument("--seconds", type=float, default=0.01)
    parser.add_argument("--schedule", default="1f1b")
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()

    hpcrun.train.init()
    if options.work == "dense":
        train(options, SMALL_WIDTH, PeakMemory())
    memory = PeakMemory()
    seconds, weight_bytes = train(options, options.width, memory)
    found = {
        "seconds": seconds[2:],
        "weight_bytes": weight_bytes,
        "peaks": hpcrun.train.comm().allgather(memory.phases),
    }
    if options.work == "sleep":
        found["pass_seconds"] = time_passes(options)
    if hpcrun.train.is_chief():
        print(json.dumps(found), flush=True)


def time_passes(options: argparse.Namespace) -> float:
    """Return the median seconds of the forward and backward pass of the whole model for a micro-batch."""
    import tensorflow as tf

    model, x = make_model(options, options.width), tf.ones((options.batch // options.micro_batches, options.width))

    @tf.function
    def compute_gradients(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - x))
        return tape.gradient(loss, model.trainable_variables)

    seconds = []
    for _ in range(8):
        start = time.perf_counter()
        compute_gradients(x)[0].numpy()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def train(options: argparse.Namespace, width: int, memory: PeakMemory) -> tuple[list[float], int]:
    """Train a model; return the seconds of each step, and the bytes of the weights."""
    import keras

    keras.utils.set_random_seed(1)
    x = np.random.default_rng(0).normal(size=(options.batch, width)).astype("float32")
    with hpcrun.train.lazy_weights():
        keras_model = make_model(options, width)
    per_stage = options.layers // options.stages
    ends = [f"layer{per_stage * number - 1}" for number in range(1, options.stages)]
    model = hpcrun.train.Model(
        keras_model,
        stages=ends or 1,
        micro_batches=options.micro_batches,
        schedule=options.schedule,
        recompute=options.recompute,
    )
    model.compile(keras.optimizers.Adam(1e-4), loss="mse")
    seconds: list[float] = []

    class Timer(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            self.start = time.perf_counter()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            seconds.append(time.perf_counter() - self.start)
            if len(seconds) == 1:
                memory.end_phase()

    memory.end_phase()
    model.fit(x, x, batch_size=options.batch, epochs=options.rounds + 2, verbose=0, callbacks=[Timer()])
    memory.end_phase()
    return seconds, 4 * sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)


if __name__ == "__main__":
    main()
