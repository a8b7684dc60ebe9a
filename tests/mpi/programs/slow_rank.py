"""Train with a slow second rank, which stalls while one file exists, until another file ends the training."""

# ruff: noqa: E402  (hpcrun.train.init() comes before Keras, as in every script)

import os
import time
from pathlib import Path

import hpcrun.train

hpcrun.train.init()

import keras
from cases import data

folder = Path(os.environ["HPCRUN_RUN_DIR"])


def wait_while_stalled():
    while (folder / "hang").exists():
        time.sleep(0.05)


class SlowRank(keras.callbacks.Callback):
    """Slows down rank 1, and stops both ranks at the end of an epoch."""

    def on_train_batch_end(self, batch, logs=None):
        if hpcrun.train.rank() == 1:
            time.sleep(0.05)
            if batch < 8:  # within an epoch, so that the other rank waits for gradients
                wait_while_stalled()

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = (folder / "end").exists()


x, y = data(64)
model = hpcrun.train.Model(keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)]))
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(x, y, batch_size=4, epochs=1000, callbacks=[SlowRank()])
hpcrun.train.write_result(test_accuracy=1.0)
