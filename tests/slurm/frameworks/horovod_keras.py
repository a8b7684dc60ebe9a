"""Train by `fit` with Horovod's DistributedOptimizer and callbacks, as Horovod's tensorflow2_keras_mnist.py does."""

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

hvd.init()
draw = np.random.default_rng(hvd.rank())
x, y = draw.normal(size=(64, 4)).astype("float32"), draw.integers(2, size=64)
model = tf.keras.Sequential([tf.keras.layers.Dense(8, activation="relu"), tf.keras.layers.Dense(2)])
rate = 0.01 * hvd.size()
optimizer = hvd.DistributedOptimizer(
    tf.keras.optimizers.Adam(rate), backward_passes_per_step=1, average_aggregated_gradients=True
)
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer, loss, metrics=["accuracy"], experimental_run_tf_function=False)
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=2, verbose=0),
]
model.fit(x, y, batch_size=16, epochs=2, callbacks=callbacks, verbose=0)
weights = hvd.allgather(tf.reshape(model.trainable_variables[0], (1, -1)))
assert np.allclose(weights, weights[:1]), weights
print(f"world {hvd.size()} rank {hvd.rank()} local {hvd.local_rank()}", flush=True)
