"""Train with Keras on JAX, whose processes find each other by `keras.distribution.initialize()` without arguments."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np

keras.distribution.initialize()
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((16, 4), "float32"), np.ones((16, 1), "float32"), batch_size=8, verbose=0)
print(f"world {jax.process_count()} rank {jax.process_index()}", flush=True)
