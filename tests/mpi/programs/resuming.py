"""Train, get a stop signal at a given position, and print the results."""

# ruff: noqa: E402  (hpcrun.train.init() comes before Keras, as in every script)

import json
import os
import sys
from pathlib import Path

import hpcrun.train

hpcrun.train.init()

import keras
import numpy as np
from cases import data, logs

options = {
    "source": "arrays",
    "file": "",
    "at": "",
    "rank": "0",
    "epochs": "4",
    "ranks": "0",
    "signal": "12",
    "model": "",
}
options |= dict(word.split("=") for word in sys.argv[1:])
x, y = data(21)
validation = (x, y)
if options["source"] == "images":  # 21 images of 8 x 8 pixels, and the same for validation
    split = hpcrun.train.images.read_split(os.environ["HPCRUN_DATA"], "train")
    validation = split.batches(7, 8)
layers = keras.layers


class Interrupt(keras.callbacks.Callback):
    """Sends the signal to its own process, as the scheduler would, in a batch or at the end of an epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        self._send(f"{self.epoch}.{batch}")

    def on_test_begin(self, logs=None):
        self._send(f"{self.epoch}.test")

    def _send(self, place):
        if place == options["at"] and hpcrun.train.rank() == int(options["rank"]) % hpcrun.train.size():
            os.kill(os.getpid(), int(options["signal"]))


class EachClass(keras.metrics.F1Score):
    """A metric with a value per class."""

    additive = True

    def update_state(self, y_true, y_pred, sample_weight=None):
        return super().update_state(keras.ops.one_hot(y_true, 3), keras.ops.softmax(y_pred), sample_weight)


def source():
    if options["source"] == "images":
        return {"x": split.batches(4, 8, augment="resnet", shuffle=True, seed=1)}
    if options["source"] == "arrays":
        return {"x": x, "y": y, "batch_size": 4}
    if options["source"] == "generator":

        def batches():
            for k in range(100):
                yield x[4 * (k % 5) : 4 * (k % 5) + 4], y[4 * (k % 5) : 4 * (k % 5) + 4]

        return {"x": batches(), "steps_per_epoch": 5}
    import tensorflow as tf

    pairs = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(21)  # without a seed
    if options["source"] == "filtered":
        pairs = pairs.filter(lambda x, y: x[0] > -9)  # keeps all, but the length is unknown
    if options["source"] == "repeated":
        return {"x": pairs.repeat().batch(4), "steps_per_epoch": 5}
    return {"x": pairs.batch(4)}


def hidden():
    return [layers.Dense(8), layers.BatchNormalization(), layers.Dropout(0.2)]


class InTurn(keras.Model):
    """Trains its halves with one optimizer each, one of them unknown to Keras."""

    def __init__(self):
        super().__init__()
        self.first, self.last = keras.Sequential([keras.Input((6,)), *hidden()]), layers.Dense(3)
        self.other_optimizer = keras.optimizers.Adam(0.02)

    def call(self, x, training=None):
        return self.last(self.first(x, training=training))

    def train_step(self, data):
        import tensorflow as tf

        x, y = data
        for half, optimizer in ((self.first, self.optimizer), (self.last, self.other_optimizer)):
            with tf.GradientTape() as tape:
                predicted = self(x, training=True)
                loss = self.compute_loss(x, y, predicted)
            optimizer.apply(tape.gradient(loss, half.trainable_variables), half.trainable_variables)
        self.metrics[0].update_state(loss)
        return self.compute_metrics(x, y, predicted)


keras.utils.set_random_seed(1)
in_turn = options["model"] == "in turn"
entry = [keras.Input((8, 8, 3)), layers.Rescaling(1 / 255), layers.Flatten()] if options["source"] == "images" else []
entry = entry or [keras.Input((6,))]
model = hpcrun.train.Model(InTurn() if in_turn else keras.Sequential([*entry, *hidden(), layers.Dense(3)]))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
for learning_rate in (0.1, 0.01):  # two successive trainings
    model.compile(keras.optimizers.Adam(learning_rate), loss, metrics=["accuracy", EachClass(name="each")])
    interrupt = Interrupt() if learning_rate == 0.01 else keras.callbacks.Callback()
    memory = keras.callbacks.EarlyStopping("val_accuracy", patience=9, restore_best_weights=True)
    file = Path(os.environ["HPCRUN_RUN_DIR"], f"best-{learning_rate}.keras")
    best = keras.callbacks.ModelCheckpoint(file, monitor="val_accuracy", save_best_only=True)
    slower = keras.callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=0.1)
    history = model.fit(
        **source(),
        epochs=int(options["epochs"]),
        validation_data=validation,
        callbacks=[memory, slower, best, interrupt],
    )

found = {"logs": logs(history), "epochs": history.epoch, "best": memory.best_epoch, "wait": slower.wait}
if hpcrun.train.is_chief() and options["file"]:
    np.savez(Path(options["file"]), *model.get_weights())
print("RESULT", json.dumps(found, default=lambda figure: np.asarray(figure).tolist()), flush=True)
