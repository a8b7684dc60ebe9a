"""Checks of the warnings about differences from one process: each check prints where its output begins."""

# ruff: noqa: E402  (hpcrun.train.init() comes before Keras, as in every script)

import json
import sys
from typing import Any

import hpcrun.train

hpcrun.train.init()

import keras
import numpy as np
import tensorflow as tf
from cases import data
from checks import assert_refused, run_checks
from keras import layers

from hpcrun.train.data import random_ops
from hpcrun.train.data.tf_data import shard_dataset
from hpcrun.train.gradients import unreduced_losses
from hpcrun.train.ranks.world import world

rank, size = hpcrun.train.rank(), hpcrun.train.size()
x, y = data(24)
y = y.astype("float32")[:, np.newaxis]
fit_arguments: dict[str, Any] = {"batch_size": 12, "shuffle": False, "verbose": 0}


def start_case(name):
    unreduced_losses._warned.clear()  # each case may print it
    random_ops._warned.clear()
    print("CASE", name, flush=True)


class Own(keras.Sequential):
    """Takes steps with the loss reduced by `reduce`."""

    def __init__(self, reduce):
        super().__init__([keras.Input((6,)), layers.Dense(3), layers.Dense(1)])
        self.reduce = reduce

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.reduce(keras.losses.mean_squared_error(y, self(x, training=True)))
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, self.trainable_variables), 1.0)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": tf.reduce_mean(loss)}


def fit(reduce, **options):
    model = hpcrun.train.Model(Own(reduce))
    model.compile("sgd", **options)
    model.fit(x, y, **fit_arguments)


def check_fit():
    mean, stack = tf.reduce_mean, tf.stack
    quiet = {
        "mean": mean,
        "list": lambda loss: [mean(loss), 0.1 * mean(loss)],
        "stack": lambda loss: stack([mean(loss), 0.1 * mean(loss)]),
        "keepdims": lambda loss: tf.reduce_mean(loss, keepdims=True),
    }
    modes = {"": {}, " eagerly": {"run_eagerly": True}, " by XLA": {"jit_compile": True}}
    for mode, options in modes.items():
        for name, reduce in quiet.items() if mode != " by XLA" else ():
            start_case(f"quiet {name}{mode}")
            fit(reduce, **options)
        for name in ("vector", "vector, for the second time") if not mode else ("vector",):
            if "second" in name:
                print("CASE quiet", name)
            else:
                start_case(f"warned {name}{mode}")
            fit(tf.identity if mode != " eagerly" else lambda loss: tf.tile(loss, [2]), **options)


def loop(target, inner=None, *, graph=True):
    network = keras.Sequential([keras.Input((6,)), layers.Dense(3), layers.Dense(1)])
    hpcrun.train.broadcast(network)
    optimizer = hpcrun.train.Optimizer(keras.optimizers.SGD(0.01))
    variables = network.trainable_variables

    def step(x, y):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            predicted = network(x)
            loss = target((predicted - y) ** 2)
            if inner:
                loss += tf.reduce_mean(tape.gradient(inner(predicted), x) ** 2)
        tape.gradient(predicted, variables)  # computed, but not applied
        gradients = tape.gradient(loss, variables)
        tape.gradient(predicted, x)
        optimizer.apply(gradients, variables)

    local = slice(rank, 24, size)
    (tf.function(step) if graph else step)(tf.constant(x[local]), tf.constant(y[local]))


def check_custom_loops():
    for graph in (True, False):
        mode = "in a graph" if graph else "eagerly"
        start_case(f"quiet mean {mode}")
        loop(tf.reduce_mean, graph=graph)
        start_case(f"quiet gradient penalty {mode}")
        loop(tf.reduce_mean, tf.identity, graph=graph)
        start_case(f"warned vector {mode}")
        loop(tf.identity, graph=graph)


def check_random_maps():
    def draw_epochs(map_, *more, calls=None):
        numbers = tf.data.Dataset.zip(tf.data.Dataset.range(24), *more) if more else tf.data.Dataset.range(24)
        batches = numbers.map(map_, num_parallel_calls=calls).batch(8)
        sharded = shard_dataset(batches.map(lambda batch: tf.repeat(batch, size)))  # so that all ranks get each sample
        epochs = [np.concatenate([part.data.numpy() for part in sharded]).tolist() for _ in range(2)]
        return world().comm.allgather(epochs)

    def flips():
        flip = keras.layers.RandomFlip("horizontal")
        return lambda n: flip(tf.reshape(tf.range(8.0), (1, 2, 4, 1)), training=True)[0, 0, 0, 0]

    def uniform(n):
        return tf.random.uniform([]) + 0 * tf.cast(n, tf.float32)

    keras.utils.set_random_seed(1 + rank)
    tf.random.set_seed(None)
    start_case("announced uniform")
    found = draw_epochs(uniform)
    assert found[0] != found[1], "otherwise no message is needed"
    print("CASE quiet the second time")
    draw_epochs(uniform)
    start_case("announced layer")
    draw_epochs(flips())
    flip = flips()
    assert_refused("filters at random", shard_dataset, tf.data.Dataset.range(9).filter(lambda n: flip(n) > 0).batch(3))
    keras.utils.set_random_seed(1)
    numpy_random = np.random.default_rng()
    start_case("announced NumPy")
    draw_epochs(lambda n: n + tf.numpy_function(lambda: numpy_random.integers(9), [], tf.int64))
    start_case("announced a Python function")
    draw_epochs(lambda n: n + tf.py_function(lambda: np.int64(np.random.randint(9)), [], tf.int64))
    start_case("quiet NumPy")
    draw_epochs(lambda n: tf.numpy_function(np.square, [n], tf.int64))
    start_case("announced layer in parallel")
    draw_epochs(flips(), calls=4)
    start_case("announced uniform in parallel")
    draw_epochs(uniform, calls=4)
    start_case("quiet seeded")
    for map_ in (flips(), uniform, lambda n: tf.random.uniform([], seed=3)):
        found = draw_epochs(map_)
        assert found == found[:1] * size
    start_case("quiet as the HINT says")
    random = tf.data.Dataset.random(seed=1, rerandomize_each_iteration=True)
    found = draw_epochs(lambda n, number: tf.random.stateless_uniform([], [number, 0]), random, calls=4)
    assert found == found[:1] * size
    assert found[0][0] != found[0][1], "each epoch draws other numbers"


failed = run_checks(__name__, sys.argv[1:])
print("RESULT", json.dumps(failed), flush=True)
sys.exit(len(failed))
