"""Checks of the learning rate warm-up against the formulas."""

import contextlib
import io
import json
import sys
from pathlib import Path

import keras
import numpy as np
from checks import assert_refused, run_checks

import hpcrun.train
from hpcrun.train.ranks.world import world

rank, size = hpcrun.train.rank(), hpcrun.train.size()
folder, backend = Path(sys.argv[1]), keras.backend.backend()
draw = np.random.default_rng(4)
x = draw.normal(size=(12, 3)).astype("float32")
y = (x @ draw.normal(size=(3, 1))).astype("float32")
STEPS, LR = 3, 0.02  # of 4 samples


class Rates(keras.callbacks.Callback):
    """Records the rate of every step; last in the list, so that it sees the final rate."""

    def __init__(self):
        super().__init__()
        self.rates_seen = []

    def on_train_batch_begin(self, batch, logs=None):
        self.rates_seen.append(float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))


def assert_close(found, expected, tolerance=1e-6):
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=0, atol=tolerance)


def line(optimizer=None, wrap=lambda model: model, **options):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
    model = wrap(model)
    model.compile(optimizer or keras.optimizers.SGD(LR, momentum=0.9), "mse", **options)
    return model


class Fit:
    """Trains, and records the rates of all steps and the printed output."""

    printed = ""

    def __call__(self, model, warmup, epochs, record=True, data=None, **options):
        rates = Rates()
        given = {"x": x, "y": y, "batch_size": 4} if data is None else {"x": data}
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            callbacks = [warmup, *options.pop("callbacks", []), *([rates] if record else [])]
            model.fit(**given, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks, **options)
        self.printed = printed.getvalue()
        return rates.rates_seen


fit = Fit()


def ramp(epochs, warmup, factor, first=0, steps=STEPS):
    t = np.arange(first * steps, epochs * steps)
    return LR * (1 + (factor - 1) * np.minimum(t / (warmup * steps), 1) if warmup else factor + 0 * t)


def momentum_steps(rates, momentum=0.9):
    """Equation (9) of Goyal et al.: the velocity does not contain the rate."""
    w, u = np.zeros((3, 1)), np.zeros((3, 1))
    for t, rate in enumerate(rates):
        batch = slice(4 * (t % STEPS), 4 * (t % STEPS) + 4)
        gradient = 2 * x[batch].T.astype(float) @ (x[batch] @ w - y[batch]) / 4
        u = momentum * u + gradient
        w = w - rate * u
    return w


def check_learning_rates():
    assert_close(fit(line(), hpcrun.train.WarmupScaling(2, factor=4), 4), ramp(4, 2, 4))
    assert fit.printed.count("\n") == 2 * (rank == 0), fit.printed
    assert_close(fit(line(), hpcrun.train.WarmupScaling(2.5, factor=0.5, verbose=False), 4), ramp(4, 2.5, 0.5))
    assert not fit.printed
    assert_close(fit(line(), hpcrun.train.WarmupScaling(0, factor=4), 2), ramp(2, 0, 4))
    assert_close(fit(line("sgd"), hpcrun.train.WarmupScaling(1, factor=3, learning_rate=LR), 2), ramp(2, 1, 3))
    adam = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(LR))
    assert_close(fit(line(adam), hpcrun.train.WarmupScaling(2, factor=4), 3), ramp(3, 2, 4))
    assert_close(fit(line(), hpcrun.train.WarmupScaling(2), 3), ramp(3, 2, size))


def check_momentum_correction():
    expected = momentum_steps(ramp(4, 2, 4))
    for optimizer in (
        keras.optimizers.SGD(LR, momentum=0.9),
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(LR, momentum=0.9), initial_scale=8.0),
    ):
        for options in ({}, {"run_eagerly": True}):
            # Nothing else reads the variables; on JAX reading them would update them.
            model = line(
                keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer)), **options
            )
            fit(model, hpcrun.train.WarmupScaling(2, factor=4), 4, record=False)
            assert_close(model.get_weights()[0], expected)
    model = line()
    fit(model, hpcrun.train.WarmupScaling(2, factor=4, momentum_correction=False), 4, record=False)
    assert np.abs(model.get_weights()[0] - expected).max() > 1e-3
    model = line(keras.optimizers.SGD(LR))
    fit(model, hpcrun.train.WarmupScaling(2, factor=4), 4)
    assert_close(model.get_weights()[0], momentum_steps(ramp(4, 2, 4), momentum=0))


def check_decay():
    expected = ramp(9, 2, 4) * np.repeat([hpcrun.train.decay("step", 9)(epoch) for epoch in range(9)], STEPS)
    assert_close(np.unique(np.round(expected[2 * STEPS :], 9)), 4 * LR * np.array([0.001, 0.01, 0.1, 1]))
    warmup = hpcrun.train.WarmupScaling(2, factor=4, decay=hpcrun.train.decay("step", 9))
    model = line()
    assert_close(fit(model, warmup, 9), expected)
    assert_close(model.get_weights()[0], momentum_steps(expected))
    assert fit.printed.count("from epoch 4 on") == (rank == 0), fit.printed
    warmup = hpcrun.train.WarmupScaling(0, factor=1, decay=hpcrun.train.decay("exponential", 9, factor=0.5))
    assert_close(fit(line(), warmup, 5), LR * np.repeat([1, 1, 0.5, 0.5, 0.25], STEPS))
    cosine = hpcrun.train.decay("cosine", 4)
    warmup = hpcrun.train.WarmupScaling(1, factor=2, decay=cosine)
    later = [2 * LR * cosine(epoch) for epoch in (2, 3)]
    assert_close(fit(line(), warmup, 4, initial_epoch=2), np.repeat(later, STEPS))


def check_resuming():
    assert_close(fit(line(), hpcrun.train.WarmupScaling(5, factor=4), 7, initial_epoch=3), ramp(7, 5, 4, first=3))
    assert "from epoch 4" in fit.printed or rank
    assert_close(fit(line(), hpcrun.train.WarmupScaling(5, factor=4), 8, initial_epoch=7), ramp(8, 5, 4, first=7))
    model, warmup = line(), hpcrun.train.WarmupScaling(3, factor=4)
    assert_close(fit(model, warmup, 2), ramp(2, 3, 4))
    assert_close(
        fit(model, warmup, 5, initial_epoch=2), ramp(5, 3, 4, first=2)
    )  # the same callback remembers the first rate
    assert_close(model.get_weights()[0], momentum_steps(ramp(5, 3, 4)))
    model.optimizer.learning_rate = 0.007  # as ReduceLROnPlateau might set it
    assert_close(fit(model, hpcrun.train.WarmupScaling(3, factor=4), 6, initial_epoch=5), [0.007] * STEPS)
    for stepped in (model, line()):
        fit(stepped, hpcrun.train.WarmupScaling(9, 1), 1)  # with factor 1 the reference does not matter
        assert_refused("has taken steps", fit, stepped, hpcrun.train.WarmupScaling(3, factor=4), 1)
    assert_close(fit(stepped, hpcrun.train.WarmupScaling(1, factor=4, learning_rate=LR), 2), ramp(2, 1, 4))


def check_backup():
    class Crash(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    for before in (True, False):  # position of the restoring callback in the list
        backup = folder / f"backup-{rank}-{before}"

        def callbacks(*more):
            both = [keras.callbacks.BackupAndRestore(backup), hpcrun.train.WarmupScaling(3, factor=4)]  # noqa: B023
            first, *rest = both if before else reversed(both)  # noqa: B023
            return first, [*rest, *more]

        first, rest = callbacks(Crash())
        with contextlib.suppress(KeyboardInterrupt):
            fit(line(), first, 5, callbacks=rest)
        model = line()
        first, rest = callbacks()
        assert_close(fit(model, first, 5, callbacks=rest), ramp(5, 3, 4, first=2))
        assert_close(model.get_weights()[0], momentum_steps(ramp(5, 3, 4)))


def check_unknown_steps():
    def batches():
        for start in range(0, 12 * 4, 4):
            yield x[start % 12 : start % 12 + 4], y[start % 12 : start % 12 + 4]

    class Unknown(keras.callbacks.Callback):
        def set_params(self, params):
            params["steps"] = None  # as if Keras did not know the number of batches

    expected = ramp(4, 2, 4)
    expected[:STEPS] = expected[0]
    assert_close(
        fit(line(), hpcrun.train.WarmupScaling(2, factor=4), 4, data=batches(), steps_per_epoch=3), ramp(4, 2, 4)
    )
    warmup, rates = hpcrun.train.WarmupScaling(2, factor=4), Rates()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        line().fit(x, y, batch_size=4, epochs=4, verbose=0, callbacks=[Unknown(), warmup, rates])
    assert_close(rates.rates_seen, expected)
    assert "unknown" in printed.getvalue() or rank


def check_plateau_continues():
    plateau = keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=1e9)
    rates_seen = fit(line(), hpcrun.train.WarmupScaling(1, factor=4), 4, callbacks=[plateau])
    assert_close(rates_seen[STEPS:], 4 * LR * np.repeat([1, 0.5, 0.25], STEPS))


def check_all_ranks():
    model = line(wrap=hpcrun.train.Model)
    assert_close(fit(model, hpcrun.train.WarmupScaling(2), 4), ramp(4, 2, size))
    assert_close(model.get_weights()[0], momentum_steps(ramp(4, 2, size)))
    assert len(set(world().comm.allgather(model.get_weights()[0].tobytes()))) == 1


def check_refusals():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    adam = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(schedule))
    for optimizer in (keras.optimizers.SGD(schedule), adam):
        assert_refused("schedule", fit, line(optimizer), hpcrun.train.WarmupScaling(factor=2), 1)
    for arguments in ({"warmup_epochs": -1}, {"factor": 0}, {"learning_rate": -0.1}):
        assert_refused(next(iter(arguments)), hpcrun.train.WarmupScaling, **arguments)


failed = run_checks(__name__)
print("RESULT", json.dumps({"failed": failed, "size": size}), flush=True)
sys.exit(len(failed))
