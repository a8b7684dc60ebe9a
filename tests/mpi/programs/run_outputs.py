"""Train with `run_callbacks`, stop at a given epoch or finish, and print what the run directory holds."""

# ruff: noqa: E402  (hpcrun.train.init() comes before Keras, as in every script)

import json
import os
import signal
import sys
from pathlib import Path

import hpcrun.train

hpcrun.train.init()

import keras
import numpy as np

options = {"stop": "", "break": "", "layer": ""} | dict(word.split("=") for word in sys.argv[1:])
folder = Path(os.environ["HPCRUN_RUN_DIR"])
x = np.random.default_rng(0).integers(256, size=(60, 8, 8, 1), dtype=np.uint8)
y = x[:, 0, 0, 0] % 3
wrong = (y + 1) % 3  # the better the model fits y, the larger is its loss for these


class Stop(keras.callbacks.Callback):
    """Sends a stop signal as the scheduler would."""

    def on_epoch_begin(self, epoch, logs=None):
        if options["stop"] == str(epoch) and hpcrun.train.rank() == 0:
            os.kill(os.getpid(), signal.SIGUSR2)


class Break(keras.callbacks.Callback):
    """Sets a weight to infinity before a step."""

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if options["break"] == f"{self.epoch}.{batch}":
            model.get_layer("second").bias.assign([np.inf] * 3)


class NotSaved(keras.layers.Layer):
    """Cannot be saved."""

    def call(self, x):
        return x

    def get_config(self):
        raise NotImplementedError("no configuration")


if options["layer"]:
    layer = NotSaved() if options["layer"] == "unsaved" else keras.layers.Identity()
    small = hpcrun.train.Model(keras.Sequential([keras.Input((2,)), layer, keras.layers.Dense(1, use_bias=False)]))
    small.set_weights([np.ones((2, 1))])
    small.compile(keras.optimizers.SGD(-0.1), "mse", metrics=["mae"])  # each epoch is worse than the one before
    samples = np.ones((4, 2)), np.ones((4, 1))
    outputs = hpcrun.train.run_callbacks(folder=folder / "new" / "deep", monitor="val_mae")
    small.fit(*samples, epochs=2, validation_data=samples, callbacks=outputs)
    sys.exit()

keras.utils.set_random_seed(1)
pixels = [keras.Input((8, 8, 1), dtype="uint8"), keras.layers.Rescaling(1 / 255), keras.layers.Flatten()]
hidden = [keras.layers.Dense(9, name="first"), keras.layers.BatchNormalization()]
last = [keras.layers.Dense(3, name="second"), keras.layers.Dense(3)]
model = hpcrun.train.Model(keras.Sequential([*pixels, *hidden, *last]))
optimizer = hpcrun.train.average_weights(keras.optimizers.SGD(0.3, momentum=0.9), 0.5)
model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
callbacks = [Break(), *hpcrun.train.run_callbacks(["a", "b\nb", "c  c"], log_every=3, monitor="val_loss"), Stop()]
history = model.fit(x, y, batch_size=10, epochs=4, validation_data=(x, wrong), callbacks=callbacks).history
hpcrun.train.write_result(final_loss=history["loss"][-1])


def scalars():
    """Return the values of each tag that TensorBoard would show, in steps."""
    import tensorflow as tf

    values: dict[str, dict[int, float]] = {}
    for file in sorted(folder.glob("tensorboard/fit-0/*")):
        for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
            event = tf.compat.v1.Event.FromString(record)
            for value in event.summary.value:
                values.setdefault(value.tag, {})[event.step] = float(tf.make_ndarray(value.tensor))
    return values


def follow(factor, steps):
    """Return the average of a weight that is 1, 2, ... after each step, and the expected one."""
    weight, expected = keras.Variable([0.0]), 0.0
    optimizer = hpcrun.train.average_weights(keras.optimizers.SGD(1.0), factor)
    optimizer.build([weight])
    for n in range(steps):
        optimizer.apply([keras.ops.convert_to_tensor([-1.0])], [weight])
        now = min(factor, (1 + n) / (10 + n)) if n else 0
        expected = now * expected + (1 - now) * (n + 1)
    return float(optimizer._model_variables_moving_average[0][0]), expected


found = {"val_loss": history["val_loss"]}
if hpcrun.train.is_chief():
    found |= {"record": json.loads((folder / "saved_model.json").read_text()), "scalars": scalars()}
    found["averages"] = [follow(0.5, 5), follow(0.5, 20)]
    for name in ("best", "model"):
        loaded = keras.models.load_model(folder / f"{name}.keras")
        found[name] = loaded.evaluate(x, wrong, batch_size=10, verbose=0)[0]
print("RESULT", json.dumps(found), flush=True)
