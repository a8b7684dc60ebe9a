"""Checks which rank runs which callback."""

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from cases import compiled, data, network, weights
from checks import assert_refused, run_checks

import hpcrun.train
from hpcrun.train.callbacks import callbacks_on_this_rank, wrap_user_callbacks
from hpcrun.train.ranks.world import world

hpcrun.train.init()
rank, size = hpcrun.train.rank(), hpcrun.train.size()
folder = Path(sys.argv[1])
x, y = data(12)
fit_arguments: dict[str, Any] = {"batch_size": 6, "shuffle": False, "epochs": 2, "verbose": 0}


class EpochCounter(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.epochs = 0

    def on_epoch_end(self, epoch, logs=None):
        self.epochs += 1


def ranks_that_ran(callback, **options):
    """Return the ranks that run a callback."""
    given = hpcrun.train.Callback(callback, **options) if options else callback
    return [
        r
        for r, runs in enumerate(
            world().comm.allgather(callback in callbacks_on_this_rank(wrap_user_callbacks([given])))
        )
        if runs
    ]


def check_every_callback_of_keras():
    """A new version of Keras may add a callback that writes, which this table must then list."""
    expected_ranks: dict[str, tuple[range | list[int], dict[str, Any] | None]] = {
        "BackupAndRestore": ([0], {"backup_dir": folder}),
        "CSVLogger": ([0], {"filename": "log.csv"}),
        "ModelCheckpoint": ([0], {"filepath": "model.keras"}),
        "OrbaxCheckpoint": ([0], None),  # needs orbax
        "ProgbarLogger": ([0], {}),
        "RemoteMonitor": ([0], {}),
        "TensorBoard": ([0], {}),
        "Callback": (range(size), {}),
        "EarlyStopping": (range(size), {}),
        "History": (range(size), {}),
        "LambdaCallback": (range(size), {}),
        "LearningRateScheduler": (range(size), {"schedule": lambda epoch: 0.1}),
        "ReduceLROnPlateau": (range(size), {}),
        "SwapEMAWeights": (range(size), {}),
        "TerminateOnNaN": (range(size), {}),
    }
    for name in dir(keras.callbacks):
        kind = getattr(keras.callbacks, name)
        if isinstance(kind, type) and name not in {"CallbackList", "MonitorCallback"}:
            expected, arguments = expected_ranks[name]
            callback = object.__new__(kind) if arguments is None else kind(**arguments)
            assert ranks_that_ran(callback) == list(expected), name
            assert ranks_that_ran(callback, all_ranks=None) == list(expected), name
            assert ranks_that_ran(callback, all_ranks=True) == list(range(size)), name
            assert ranks_that_ran(callback, all_ranks=False) == [0], name


def check_user_callbacks():
    class CustomCheckpoint(keras.callbacks.ModelCheckpoint):
        pass

    assert ranks_that_ran(CustomCheckpoint("model.keras")) == [0]
    assert ranks_that_ran(EpochCounter()) == list(range(size))
    default, counted = (
        callbacks_on_this_rank(wrap_user_callbacks(None)),
        callbacks_on_this_rank(wrap_user_callbacks(EpochCounter())),
    )
    assert len(counted) == len(default) + 1  # a single callback instead of a list
    assert (
        len(callbacks_on_this_rank(wrap_user_callbacks([[EpochCounter()], (EpochCounter(), None)]))) == len(default) + 2
    )


def check_training():
    everywhere, chief = EpochCounter(), EpochCounter()
    checkpoint = keras.callbacks.ModelCheckpoint(folder / f"rank-{rank}.keras")
    logged = keras.callbacks.CSVLogger(folder / "log.csv")
    model = compiled(hpcrun.train.Model(network()), keras.optimizers.SGD(0.1))
    user_callbacks = [hpcrun.train.Callback(checkpoint, all_ranks=True), hpcrun.train.Callback(chief, all_ranks=False)]
    model.fit(x, y, **fit_arguments, callbacks=[everywhere, *user_callbacks, hpcrun.train.Callback(logged)])
    assert (everywhere.epochs, chief.epochs) == (2, 2 * (rank == 0))
    saved = keras.saving.load_model(folder / f"rank-{rank}.keras")
    np.testing.assert_array_equal(weights(saved), weights(model))
    hpcrun.train.barrier()
    assert len((folder / "log.csv").read_text().splitlines()) == 3
    model.evaluate(x, y, callbacks=[hpcrun.train.Callback(EpochCounter(), all_ranks=False)])
    stop = keras.callbacks.EarlyStopping("loss", patience=0, min_delta=1e9)
    history = model.fit(x, y, **fit_arguments | {"epochs": 9}, callbacks=hpcrun.train.Callback(stop, all_ranks=False))
    assert len(set(world().comm.allgather(len(history.epoch)))) == 1
    assert len(history.epoch) < 9


class OwnStep(keras.Model):
    """Updates Keras's loss metric with one number per batch, as Keras's guide does."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=predicted)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        for metric in self.metrics:
            metric.update_state(*([loss] if metric.name == "loss" else [y, predicted]))
        return self.get_metrics_result()


def check_hpcrun_metrics_are_not_in_logs():
    def own_step():
        plain = network()
        return OwnStep(plain.inputs, plain.outputs)

    for number, build in enumerate((network, own_step)):
        run_dir = folder / f"run-{number}"
        names_seen: list[str] = []
        run_dir.mkdir(exist_ok=True)
        os.environ["HPCRUN_RUN_DIR"] = str(run_dir)
        try:
            model = compiled(hpcrun.train.Model(build()), keras.optimizers.SGD(0.1))
            each = keras.callbacks.LambdaCallback(
                on_epoch_end=lambda epoch, logs, names_seen=names_seen: names_seen.extend(logs)
            )
            csv = keras.callbacks.CSVLogger(run_dir / "log.csv")
            history = model.fit(x, y, **fit_arguments | {"verbose": "auto"}, callbacks=[each, csv]).history
            hpcrun.train.write_result(accuracy=1.0)
        finally:
            del os.environ["HPCRUN_RUN_DIR"]
        assert set(history) == set(names_seen) == {"accuracy", "loss", "top2"}, (names_seen, list(history))
        if rank == 0:
            assert "images_per_second" not in (run_dir / "log.csv").read_text().splitlines()[0]
            entry = json.loads((run_dir / "metrics.jsonl").read_text().splitlines()[0])
            assert entry["images_per_second"] * entry["seconds"] == pytest.approx(len(x), rel=0.1), entry
            assert json.loads((run_dir / "result.json").read_text())["images_per_second"] > 0


def check_rank_0_alone_prints():
    printed = io.StringIO()
    model = compiled(hpcrun.train.Model(network()), "sgd")
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (1 + epoch), verbose=1)
    with contextlib.redirect_stdout(printed):
        model.fit(x, y, **fit_arguments, callbacks=[schedule])
    assert printed.getvalue().count("learning rate") == 2 * (rank == 0), printed.getvalue()


def check_swap_ema_weights():
    """SwapEMAWeights swaps on all ranks; otherwise they would evaluate different models."""
    found = []
    for wrap in (lambda model: model, hpcrun.train.Model):
        optimizer = keras.optimizers.SGD(0.3, use_ema=True, ema_momentum=0.5)
        model = compiled(wrap(network()), optimizer)
        swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
        history = model.fit(x, y, **fit_arguments, callbacks=[swap], validation_data=(x[:5], y[:5])).history
        found.append([*history["val_loss"], *history["loss"], *weights(model)])
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=2e-6)


def check_refusals():
    assert_refused("CallbackList", wrap_user_callbacks, keras.callbacks.CallbackList([EpochCounter()]))
    assert_refused("CallbackList", hpcrun.train.Callback, keras.callbacks.CallbackList([EpochCounter()]))
    assert_refused("EpochCounter(...)", hpcrun.train.Callback, EpochCounter)
    assert_refused("str is not a Keras callback", hpcrun.train.Callback, "early_stopping", all_ranks=True)
    assert_refused("function is not a Keras callback", wrap_user_callbacks, [lambda epoch: None])


failed = run_checks(__name__)
print("RESULT", json.dumps({"failed": failed, "size": size}), flush=True)
sys.exit(len(failed))
