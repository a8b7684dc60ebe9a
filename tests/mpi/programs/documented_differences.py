"""Checks of the differences that docs/exactness.md lists, on one of Keras's backends."""

# ruff: noqa: E402  (hpcrun.train.init() comes before Keras, as in every script)

import json
import traceback
from typing import Any

import hpcrun.train

hpcrun.train.init()

import keras
import numpy as np
from cases import compiled, data, network, weights
from keras import layers, ops

from hpcrun.train.ranks.world import world

rank, size = hpcrun.train.rank(), hpcrun.train.size()
x, y = data(21)
fit_arguments: dict[str, Any] = {"batch_size": 8, "shuffle": False, "epochs": 2, "verbose": 0}
EXACT, DIFFERENT = 2e-6, 1e-2


def crossentropy():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def with_layer(make):
    keras.utils.set_random_seed(1)
    return keras.Sequential([keras.Input((6,)), layers.Dense(5), make(), layers.Dense(3)])


def weight_distance(build, loss=None):
    """Return the distance of the weights of hpcrun.train from those of plain Keras in this process."""
    plain, model = build(), hpcrun.train.Model(build())
    for each in (plain, model):
        each.compile(keras.optimizers.SGD(0.1), loss or crossentropy())
        each.fit(x, y, **fit_arguments)
    return np.abs(weights(model) - weights(plain)).max()


class Adds(layers.Layer):
    def __init__(self, reduce):
        super().__init__()
        self.reduce = reduce

    def call(self, x):
        self.add_loss(0.01 * self.reduce(ops.square(x)))
        return x


def each_loss(y, outputs):
    return keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)


def check_batch_statistics():
    assert weight_distance(lambda: with_layer(layers.LayerNormalization)) < EXACT
    assert weight_distance(lambda: with_layer(hpcrun.train.SyncBatchNormalization)) < 1e-5
    assert weight_distance(lambda: with_layer(layers.BatchNormalization)) > DIFFERENT


def check_random_layers():
    assert weight_distance(lambda: with_layer(lambda: layers.Dropout(0.5))) > DIFFERENT


class Draws(layers.Layer):
    """Adds numbers without a seed, which the model returns."""

    def __init__(self, draw):
        super().__init__()
        self.draw = draw

    def call(self, x):
        return 0 * x + self.draw(ops.shape(x))


def check_unseeded_random_numbers():
    draws = [keras.random.uniform]
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        draws.append(tf.random.uniform)
    for draw in draws if keras.backend.backend() != "jax" else ():  # where Keras refuses them
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((6,)), Draws(draw), layers.Dense(3)])
        kernel = np.random.default_rng(1).normal(size=(6, 3)).astype("float32")
        model.layers[-1].set_weights([kernel, np.zeros(3, "float32")])
        seen = hpcrun.train.Model(model).predict(np.ones((2 * size, 6), "float32"))
        assert len(np.unique(seen[:, 0])) == 2 * size, seen
        before = keras.random.uniform((3,))  # outside of a step all ranks draw the same
        assert len(set(world().comm.allgather(keras.ops.convert_to_numpy(before).tobytes()))) == 1


def check_custom_losses():
    assert weight_distance(network, each_loss) < EXACT
    assert weight_distance(network, lambda y, outputs: ops.mean(each_loss(y, outputs))) < EXACT
    assert weight_distance(network, lambda y, outputs: ops.sum(each_loss(y, outputs)) / 8) > DIFFERENT
    assert weight_distance(lambda: with_layer(lambda: Adds(ops.mean))) < EXACT
    assert weight_distance(lambda: with_layer(lambda: Adds(ops.sum))) > DIFFERENT


class SampleCount(keras.metrics.Sum):
    def update_state(self, y_true, y_pred, sample_weight=None):
        super().update_state(ops.ones_like(ops.cast(y_true, "float32")))


def check_metrics_with_distribute_false():
    model = hpcrun.train.Model(network())
    model.compile("sgd", crossentropy(), metrics=["accuracy", SampleCount(name="cases")])
    distributed, undistributed = (model.evaluate(x, y, return_dict=True, distribute=d) for d in (True, False))
    assert (distributed["cases"], undistributed["cases"]) == (21, 21 * size)
    np.testing.assert_allclose(
        [undistributed[k] for k in ("loss", "accuracy")], [distributed[k] for k in ("loss", "accuracy")], rtol=1e-6
    )
    seen = []
    each = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(
            model.keras_model.evaluate(x, y, verbose=0, return_dict=True)["cases"]
        )
    )
    logs = model.fit(
        x, y, **fit_arguments, validation_data=(x, y), distribute_validation=False, callbacks=[each]
    ).history
    assert seen == [21] * 2, "a callback's self.model.evaluate is one rank's own"
    assert logs["val_cases"] == [21 * size] * 2, logs


def check_results_of_a_custom_step():
    class Own(keras.Sequential):
        def train_step(self, *state_and_data):
            result = super().train_step(*state_and_data)
            squares = ops.square(state_and_data[-1][0])
            figures = {"mean": ops.mean(squares), "sum": ops.sum(squares)}
            return (figures, result[1]) if len(state_and_data) > 1 else figures

    model = hpcrun.train.Model(Own([keras.Input((6,)), layers.Dense(3)]))
    model.compile("sgd", crossentropy())
    found = model.fit(x, y, **fit_arguments).history
    shards = [np.square(x[16 + r :: size]) for r in range(size)]  # of the last batch
    weighted = sum(part.sum() * len(part) / 5 for part in shards)
    np.testing.assert_allclose([found["mean"][-1], found["sum"][-1]], [np.square(x[16:]).mean(), weighted], rtol=1e-5)


def check_logs_within_an_epoch():
    class See(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.batch = float(logs["loss"])

        def on_epoch_end(self, epoch, logs=None):
            self.epoch = float(logs["loss"])

    see = See()
    compiled(hpcrun.train.Model(network()), "sgd").fit(x, y, **fit_arguments, callbacks=see)
    assert len(set(world().comm.allgather(see.batch))) == size
    assert len(set(world().comm.allgather(see.epoch))) == 1


def check_shuffled_orders():
    """The weights of a shuffled fit; the test compares those of different numbers of ranks."""
    model = compiled(hpcrun.train.Model(network()), "sgd")
    keras.utils.set_random_seed(9)
    model.fit(x, y, batch_size=8, epochs=2, verbose=0)
    shuffled.extend(weights(model).tolist())


failed: dict[str, str] = {}
shuffled: list[float] = []
for name, check in list(globals().items()):
    if name.startswith("check_") and (size > 1 or name == "check_shuffled_orders"):
        try:
            check()
        except Exception:  # noqa: BLE001
            failed[name] = traceback.format_exc()
            break  # a rank that failed alone is not synchronized any more
print("RESULT", json.dumps({"failed": failed, "shuffled": shuffled}), flush=True)
