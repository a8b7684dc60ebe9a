"""Fully connected layers on random data, to study communication: large gradients with little computation.

A layer of width w has w^2 weights, 4 w^2 bytes of gradients, and needs about 6 w^2 operations per sample. So the speed
is limited by the network for small batches, and by computation for large batches.
"""

from __future__ import annotations

import hpcrun.train

args = hpcrun.train.options(__file__)
hpcrun.train.init()  # starts MPI, and TensorFlow on this rank's cores and GPU, before the import of Keras

import keras  # noqa: E402
import numpy as np  # noqa: E402

keras.utils.set_random_seed(args.seed)

# Data: each step has `batch_size` samples, over all ranks.
generator, samples = np.random.default_rng(args.seed), args.batch_size * args.steps
sample_pool = generator.normal(size=(args.batch_size, args.width)).astype("float32")  # (batch, width)
x = np.arange(samples) % args.batch_size  # (n,)
y = generator.integers(10, size=samples)  # (n,)
batches = hpcrun.train.dataset(
    x, y, batch_size=args.batch_size, load=lambda indices: keras.ops.take(sample_pool, indices, axis=0)
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
