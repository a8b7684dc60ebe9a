"""Fully connected layers on random data, to study communication: as many gradients as wanted, for little computation.

A layer of width w has w^2 weights, 4 w^2 bytes of gradients, and takes about 6 w^2 operations per sample. So small
batches are limited by the network, and large ones by computation.
"""

from __future__ import annotations

import hpcrun.train

args = hpcrun.train.options(__file__)
hpcrun.train.init()  # MPI first, then TensorFlow on this rank's cores and GPU: before Keras is imported

import keras  # noqa: E402
import numpy as np  # noqa: E402

keras.utils.set_random_seed(args.seed)

# Data: a step has `batch_size` samples of all ranks together.
draw, samples = np.random.default_rng(args.seed), args.batch_size * args.steps
pool = draw.normal(size=(args.batch_size, args.width)).astype("float32")  # (batch, width)
x = np.arange(samples) % args.batch_size  # (n,)
y = draw.integers(10, size=samples)  # (n,)
batches = hpcrun.train.dataset(
    x, y, batch_size=args.batch_size, load=lambda indices: keras.ops.take(pool, indices, axis=0)
)

# Model: `depth` layers of `width` units.
network = keras.Sequential([keras.Input((args.width,))])
for _ in range(args.depth):
    network.add(keras.layers.Dense(args.width, activation="relu"))  # (batch, width)
network.add(keras.layers.Dense(10))  # (batch, 10)
model = hpcrun.train.Model(network)
model.compile(
    optimizer=keras.optimizers.SGD(0.001),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)

callbacks = hpcrun.train.run_callbacks(log_every=args.log_every)
history = model.fit(batches, epochs=args.epochs, callbacks=callbacks).history

hpcrun.train.write_result(
    final_loss=history["loss"][-1],
    parameters=network.count_params(),
    gradient_megabytes=network.count_params() * 4 / 1e6,
)
