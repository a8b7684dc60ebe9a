"""Train on batches of several sizes, and print the batch sizes for which the model was traced."""

# ruff: noqa: E402  (hpcrun.train.init() comes before Keras, as in every script)

import json
import sys

import hpcrun.train

hpcrun.train.init()

import keras
from cases import data

sizes: list[int | None] = []


class Recorder(keras.layers.Layer):
    """Records the batch sizes with which it is called: once for each graph."""

    def call(self, x):
        sizes.append(x.shape[0])
        return x


layers = [keras.Input((6,)), keras.layers.Dense(4, name="first"), Recorder(), keras.layers.Dense(3)]
stages = int(sys.argv[1])
model = hpcrun.train.Model(keras.Sequential(layers), stages=stages if stages == 1 else ["first"], micro_batches=2)
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
x, y = data(10)
model.fit(x, y, batch_size=8, epochs=1, callbacks=hpcrun.train.run_callbacks())
print("RESULT", json.dumps(sizes), flush=True)
