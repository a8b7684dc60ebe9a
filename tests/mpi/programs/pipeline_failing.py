"""A training with 2 stages that fails: pipeline_failing.py REASON."""

import os
import signal
import sys
import threading

import keras
import numpy as np
import tensorflow as tf

import hpcrun.train

reason = sys.argv[1]
hpcrun.train.init()
x = np.ones((32, 4), np.float32)


calls: list[np.ndarray] = []


def disturb(x):
    """Do on rank 1 what the reason says, at the second micro-batch of the third step."""
    calls.append(x)
    if len(calls) == 10 and hpcrun.train.rank() == 1:
        if reason == "hang":
            threading.Event().wait()
        os.kill(os.getpid(), {"stop": signal.SIGSTOP, "death": signal.SIGKILL}[reason])
    return x


class Fragile(keras.layers.Layer):
    """Layer that fails when its stage computes it for training."""

    def call(self, x, training=False):
        if training and reason == "layer":
            raise ValueError("this layer is broken")
        if training and reason == "eager function":
            return tf.ensure_shape(tf.py_function(lambda x: 2 * x, [x], x.dtype), x.shape)
        if training and reason in {"hang", "stop", "death"}:
            return x + tf.stop_gradient(0 * tf.ensure_shape(tf.numpy_function(disturb, [x], x.dtype), x.shape))
        return x


data = hpcrun.train.dataset(x, x[:, :1], batch_size=8) if reason == "early data" else None
inputs = keras.Input((4,))
outputs = keras.layers.Dense(1)(Fragile(name="fragile")(keras.layers.Dense(4, name="middle")(inputs)))
stages = ["fragile" if reason == "eager function" else "middle"]
model = hpcrun.train.Model(keras.Model(inputs, outputs), stages=stages)
reduction = "mean_with_sample_weight" if reason == "loss" else "sum_over_batch_size"
optimizer = keras.optimizers.Adam(use_ema=reason == "optimizer")
model.compile(optimizer, keras.losses.MeanSquaredError(reduction=reduction))
if data is None:
    model.fit(x, x[:, :1], sample_weight=x[:, 0], batch_size=8, epochs=3, verbose=0)
else:
    model.fit(data)
