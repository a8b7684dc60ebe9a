"""Checks that models which differ between ranks are refused with the difference, and equal ones are trained."""

import functools
import json
import sys

import keras
import numpy as np
from checks import assert_refused, run_checks
from keras import layers

import hpcrun.train

rank, size = hpcrun.train.rank(), hpcrun.train.size()
last = rank == size - 1
x = np.random.default_rng(1).normal(size=(12, 4)).astype("float32")
y = x.sum(axis=1, keepdims=True)


def build(activation="relu", **options):
    return [keras.Input((4,)), layers.Dense(3, activation=activation, **options), layers.Dense(1)]


def fit(network=None, optimizer=None, loss="mse", callbacks=None, epochs=1, **options):
    model = hpcrun.train.Model(network or keras.Sequential(build()))
    model.compile(optimizer or keras.optimizers.SGD(0.01), loss, **options)
    return model.fit(x, y, batch_size=4, epochs=epochs, callbacks=callbacks, verbose=0)


def differing(one, other):
    return other if last else one


def differing_losses():
    def absolute(true, found):
        return keras.ops.mean(keras.ops.abs(true - found), axis=-1)

    def squared(true, found):
        return keras.ops.mean(keras.ops.square(true - found), axis=-1)

    squared.__qualname__ = absolute.__qualname__  # so that only the name that it calls differs
    return differing(absolute, squared)


def scaled_loss(true, found, scale):
    return scale * keras.ops.mean((true - found) ** 2, axis=-1)


def closure_loss(scale):
    return lambda true, found: scaled_loss(true, found, scale)


def check_differences_are_named():
    optimizers, schedules = keras.optimizers, keras.optimizers.schedules
    rate = differing(0.01, 0.0101)
    cases = {
        "learning_rate of the optimizer SGD: '0.00999999978' on rank 0": {"optimizer": optimizers.SGD(rate)},
        "momentum of the optimizer SGD": {"optimizer": optimizers.SGD(0.01, momentum=rate)},
        "clipnorm of the optimizer Adam": {"optimizer": optimizers.Adam(clipnorm=differing(None, 1.0))},
        "learning_rate of the optimizer Adam": {"optimizer": optimizers.Adam(schedules.CosineDecay(rate, 10))},
        "optimizer: 'SGD' on rank": {"optimizer": differing(optimizers.SGD, optimizers.Lion)(0.01)},
        "loss: 'mse' on rank": {"loss": differing("mse", "mae")},
        "loss: ['Huber'": {"loss": keras.losses.Huber(differing(1.0, 2.0))},
        "metrics: ['mae'] on rank": {"metrics": [differing("mae", "mse")]},
        "activation of layer 1, Dense: 'relu' on rank": {"network": keras.Sequential(build(differing("relu", "tanh")))},
        "units of layer 1, Dense": {"network": keras.Sequential([layers.Dense(differing(3, 4)), layers.Dense(1)])},
        "loss: ['differing_losses": {"loss": differing_losses()},
        "loss: ['partial": {"loss": functools.partial(scaled_loss, scale=differing(1.0, 2.0))},
        "loss: ['closure_loss": {"loss": closure_loss(differing(1.0, 2.0))},
        "activation of layer 1, Dense: [": {
            "network": keras.Sequential(build(differing(lambda t: 2 * t, lambda t: 3 * t)))
        },
        "dtype of layer 1, Dense": {"network": keras.Sequential(build(dtype=differing("float32", "mixed_bfloat16")))},
        "class of layer 1": {
            "network": keras.Sequential([keras.Input((4,)), differing(layers.ReLU, layers.ELU)(), layers.Dense(1)])
        },
        "activation of layer 2, Activation": {
            "network": keras.Sequential(
                [keras.Input((4,)), keras.Sequential([layers.Activation(differing("relu", "gelu"))]), layers.Dense(1)]
            )
        },
        "function of layer 1, Lambda": {
            "network": keras.Sequential(
                [keras.Input((4,)), layers.Lambda(differing(lambda t: 2 * t, lambda t: 3 * t)), layers.Dense(1)]
            )
        },
    }
    for words, options in cases.items():
        assert_refused(words, fit, **options)


def check_differing_arguments_of_fit_are_named():
    model = hpcrun.train.Model(keras.Sequential(build()))
    model.compile("sgd", "mse")
    fit_arguments = {
        "shuffle: True on rank": {"shuffle": differing(True, False)},
        "class_weight: {'0': '2'} on rank": {"class_weight": {0: differing(2.0, 3.0)}},
    }
    for words, options in fit_arguments.items():
        assert_refused(words, model.fit, x, y, batch_size=4, verbose=0, **options)
    model.fit(x, np.zeros_like(y), batch_size=4, verbose=0, class_weight={0: 2.0})


def check_learning_rates_set_by_callbacks():
    class Halve(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1 and (self.on_all or last):
                self.model.optimizer.learning_rate = 0.005

    for Halve.on_all in (True, False):
        if Halve.on_all:
            fit(callbacks=[Halve()], epochs=3)
        else:
            words = "the ranks disagree about the learning rate: 0.01 on rank 0; 0.005 on rank"
            assert_refused(words, fit, callbacks=[Halve()], epochs=3)
    plateau = keras.callbacks.ReduceLROnPlateau("loss", patience=0, min_delta=10.0)
    fit(callbacks=[plateau, hpcrun.train.WarmupScaling(warmup_epochs=2)], epochs=3)


class CustomLayer(layers.Layer):
    """Knows functions, sets, objects and a place of this rank's own."""

    def __init__(self, **options):
        super().__init__(**options)
        self.fit_arguments = object()

    def get_config(self):
        words = {f"{word}" for word in ("a", "b", "c", "d", "e")}
        fit_arguments = {
            "object": self.fit_arguments,
            "names": words,
            "call": lambda t: t,
            "cache": f"/tmp/rank-{rank}",
            "nan": np.nan,
        }
        return {**super().get_config(), **fit_arguments, "array": np.arange(3.0), "type": dict, "method": self.call}

    def call(self, t):
        return t


def check_optimizers_of_custom_loops():
    def step(optimizer, loss_scale=None):
        optimizer = hpcrun.train.Optimizer(loss_scale(optimizer) if loss_scale else optimizer)
        weight = keras.Variable([1.0])
        optimizer.apply([keras.ops.ones(1)], [weight])

    of, rate = keras.optimizers, differing(0.01, 0.0101)
    assert_refused("learning_rate of the optimizer SGD: '0.00999999978' on rank 0", step, of.SGD(rate))
    assert_refused("clipnorm of the optimizer Adam", step, of.Adam(clipnorm=differing(None, 1.0)))
    assert_refused("optimizer: 'SGD' on rank", step, differing(of.SGD, of.Lion)(0.01))
    assert_refused("inner_optimizer of the optimizer LossScale", step, of.SGD(rate), of.LossScaleOptimizer)
    step(of.Adam(of.schedules.ExponentialDecay(0.01, 10, 0.9)))


class LayerWithoutConfig(layers.Layer):
    def __init__(self, fit_arguments):  # Keras cannot tell what it was made of
        super().__init__()
        self.fit_arguments = fit_arguments

    def call(self, t):
        return t


def check_equal_models_are_accepted():
    for _ in range(rank):
        layers.Dense(1)  # later names count on
    dropped = layers.Dropout(0.1, seed=rank)
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(4), dropped])

    def loss(true, found):
        return keras.ops.mean((true - found) ** 2, axis=-1)

    network = keras.Sequential(
        [keras.Input((4,)), inner, CustomLayer(), LayerWithoutConfig(object()), layers.Lambda(lambda t: t * 2)]
    )
    network.add(layers.Dense(1, activation=lambda t: t + 0.0))
    network.add(layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(seed=rank)))
    metrics = [keras.metrics.MeanAbsoluteError(name="far"), "mse", loss]
    fit(network, keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.01, 10, 0.9)), loss, None, 2)
    fit(network, keras.optimizers.Adam(lambda: 0.01), keras.losses.Huber(), None, 2, metrics=metrics)
    fit(network, keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01)), loss, weighted_metrics=["mae"])


failed = run_checks(__name__, sys.argv[1:])
print("RESULT", json.dumps(failed), flush=True)
sys.exit(len(failed))
