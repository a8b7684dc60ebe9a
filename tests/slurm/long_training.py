"""A training that lasts and computes little, for tests that stop it: 0.4 s an epoch. Its argument: the epochs."""

import sys
import time

import hpcrun.train

hpcrun.train.init()

import keras  # noqa: E402
import numpy as np  # noqa: E402

keras.utils.set_random_seed(1)
x = np.random.default_rng(1).normal(size=(64, 8)).astype("float32")  # (64, 8)
y = (x[:, 0] > 0).astype("int32")  # (64,)
model = hpcrun.train.Model(keras.Sequential([keras.Input((8,)), keras.layers.Dense(2, activation="softmax")]))
model.compile(keras.optimizers.SGD(1.0), "sparse_categorical_crossentropy", metrics=["accuracy"])
pause = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.1))
model.fit(x, y, batch_size=16, epochs=int(sys.argv[1]), callbacks=[pause])
hpcrun.train.write_result(test_accuracy=model.evaluate(x, y, batch_size=64)[1])
