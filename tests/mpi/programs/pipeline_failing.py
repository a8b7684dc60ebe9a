"""A training with 2 stages that fails: pipeline_failing.py REASON."""

import os
import signal
import sys

import keras
import numpy as np

import hpcrun.train

reason = sys.argv[1]
hpcrun.train.init()
x = np.ones((32, 4), np.float32)


class Fragile(keras.layers.Layer):
    """Layer that fails when its stage computes it for training."""

    def call(self, x, training=False):
        if training and reason == "layer":
            raise ValueError("this layer is broken")
        return x


class Killer(keras.callbacks.Callback):
    """Callback that kills the rank of the last stage in the middle of an epoch."""

    def on_train_batch_end(self, batch, logs=None):
        if reason == "death" and batch == 2 and hpcrun.train.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)


data = hpcrun.train.dataset(x, x[:, :1], batch_size=8) if reason == "early data" else None
inputs = keras.Input((4,))
outputs = keras.layers.Dense(1)(Fragile()(keras.layers.Dense(4, name="middle")(inputs)))
model = hpcrun.train.Model(keras.Model(inputs, outputs), stages=["middle"])
reduction = "mean_with_sample_weight" if reason == "loss" else "sum_over_batch_size"
optimizer = keras.optimizers.Adam(use_ema=reason == "optimizer")
model.compile(optimizer, keras.losses.MeanSquaredError(reduction=reduction))
if data is None:
    model.fit(x, x[:, :1], sample_weight=x[:, 0], batch_size=8, epochs=3, verbose=0, callbacks=[Killer()])
else:
    model.fit(data)
