"""What hpcrun.train promises on every backend of Keras: each check trains plain Keras and all ranks, and compares."""

# ruff: noqa: E402  (hpcrun.train.init() comes before Keras, as in every script)

import json
import os
import sys
from functools import partial
from typing import Any
from unittest import mock

import hpcrun.train

hpcrun.train.init()

import keras
import numpy as np
from cases import compiled, data, logs, network, weights
from checks import assert_refused, on_one_rank, run_checks
from keras import layers

from hpcrun.train.ranks.world import world

rank, size = hpcrun.train.rank(), hpcrun.train.size()
backend = keras.backend.backend()
x, y = data(21)
fit_arguments: dict[str, Any] = {"batch_size": 8, "shuffle": False, "epochs": 2, "verbose": 0}


def assert_close(found, expected, tolerance=2e-6):
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=tolerance, atol=tolerance)


def pair(build, fit=fit_arguments, inputs=(x, y), tolerance=2e-6, **options):
    """Train plain Keras on one rank and hpcrun.train on all; compare what they learn, log, evaluate and predict."""

    def train(wrap, **quiet):
        keras.utils.set_random_seed(1)
        model = wrap(build())
        model.compile(**{name: make() if callable(make) else make for name, make in options.items()})
        history = logs(model.fit(*inputs, **fit))
        evaluation = model.evaluate(*inputs, batch_size=8, **quiet)
        return weights(model), history, evaluation, model.predict(inputs[0], **quiet)[0]

    expected, found = on_one_rank(lambda: train(lambda model: model, verbose=0)), train(hpcrun.train.Model)
    for part, limit in zip((0, 2, 3), (tolerance, *[max(tolerance, 1e-5)] * 2), strict=True):
        assert_close(found[part], expected[part], limit)
    for name, values in expected[1].items():
        assert_close(found[1][name], values, max(tolerance, 1e-5))


def alone(train, build=network):
    """Return on all ranks what a function returns that trains plain Keras's model on one of them."""
    return on_one_rank(lambda: train(build()))


def crossentropy():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def sgd(**options):
    return lambda: keras.optimizers.SGD(0.1, momentum=0.9, **options)


def check_optimizers():
    adam = lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.5)  # noqa: E731
    scaled = lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05))  # noqa: E731
    averaged, accumulating = sgd(use_ema=True, clipvalue=0.1), sgd(gradient_accumulation_steps=2)
    # exact.py and fit_features.py test the others on TensorFlow; JAX takes seconds to compile each.
    selected = {"tensorflow": [averaged], "jax": [sgd(), adam, scaled], "torch": [sgd(), adam, scaled, accumulating]}
    for optimizer in selected[backend]:
        pair(network, loss=crossentropy, optimizer=optimizer, metrics=["accuracy"])


def check_eager_execution():
    pair(network, loss=crossentropy, optimizer=sgd(), run_eagerly=True)


def check_compiled():
    if backend != "torch":  # PyTorch's compiler needs a C++ compiler at run time
        pair(network, loss=crossentropy, optimizer=sgd(), jit_compile=True, metrics=["accuracy"])


def check_steps_per_execution():
    if backend != "torch":  # which has no such thing in Keras
        pair(network, loss=crossentropy, optimizer=sgd(), steps_per_execution=2)


class Batches(keras.utils.PyDataset):
    """Nothing but what Keras asks of one; 3 batches."""

    epochs = 0

    def on_epoch_begin(self):
        self.epochs += 1

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return x[8 * index : 8 * index + 8], y[8 * index : 8 * index + 8]


def generator(epochs=1):
    for _ in range(epochs):
        for k in range(3):
            yield x[8 * k : 8 * k + 8], y[8 * k : 8 * k + 8]


def check_data_sources():
    def train(model):
        compiled(model, "adam").fit(x, y, **fit_arguments)
        return weights(model), model.evaluate(x, y, batch_size=8, verbose=0), model.predict(x, verbose=0)

    expected, evaluation, predictions = alone(train)
    sources = {
        "PyDataset": (Batches(), {}),
        "threads": (Batches(workers=2), {}),
        "generator": (generator(2), {"steps_per_epoch": 3}),
    }
    if backend == "torch":
        import torch

        pairs = torch.utils.data.TensorDataset(torch.as_tensor(x), torch.as_tensor(y))
        sources["DataLoader"] = torch.utils.data.DataLoader(pairs, batch_size=8), {}
    if backend == "tensorflow" or os.environ.get("WITH_TENSORFLOW"):
        import tensorflow as tf

        sources["tf.data"] = tf.data.Dataset.from_tensor_slices((x, y)).batch(8), {}
        sources["filtered"] = tf.data.Dataset.from_tensor_slices((x, y)).filter(lambda x, y: y >= 0).batch(8), {}
        sources["repeated"] = tf.data.Dataset.from_tensor_slices((x, y)).batch(8).repeat(), {"steps_per_epoch": 3}
    for name, (source, options) in sources.items():
        model = compiled(hpcrun.train.Model(network()), "adam")
        model.fit(source, shuffle=False, epochs=2, **options)
        assert_close(weights(model), expected)
        assert getattr(source, "epochs", 2) == 2
        again = generator() if name == "generator" else source
        steps = 3 if name == "repeated" else None
        assert_close(model.evaluate(again, steps=steps), evaluation, 1e-5)
        again = generator() if name == "generator" else source
        assert_close(model.predict(again, steps=steps), predictions, 1e-5)


def check_callbacks_of_a_run_do_not_wait_for_steps():
    model = compiled(hpcrun.train.Model(network()), "adam")
    with mock.patch("hpcrun.train.callback_list.to_numbers") as converted:
        model.fit(x, y, callbacks=hpcrun.train.run_callbacks(), **fit_arguments)
    assert converted.call_count == 0
    seen: list[float] = []
    reads = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(logs["loss"]))
    model.fit(x, y, callbacks=[*hpcrun.train.run_callbacks(), reads], **fit_arguments)
    assert [type(loss) for loss in seen] == [float] * 6


def check_nan_is_found_in_its_batch():
    bad = x.copy()
    bad[8:16] = np.nan
    model = compiled(hpcrun.train.Model(network()), "adam")
    fit = partial(model.fit, bad, y, callbacks=hpcrun.train.run_callbacks(), **fit_arguments)
    cause = "" if backend == "torch" else "the inputs of this batch are not finite"
    assert_refused(f"the loss is nan at step 2 of epoch 1: {cause}", fit)


def check_any_number_of_samples_in_any_batches():
    if backend == "tensorflow":  # exact.py
        return
    draw = np.random.default_rng(7)
    sizes = [draw.integers(1, 4 * size + 9, size=2).tolist() for _ in range(4 if backend == "jax" else 8)]

    def train(model, **quiet):
        for samples, batch in sizes:
            model.fit(*data(samples), batch_size=batch, shuffle=False, verbose=0)
            yield weights(model), model.evaluate(*data(samples), **quiet)

    expected = on_one_rank(lambda: list(train(compiled(network(), sgd()()), verbose=0)))
    found = train(compiled(hpcrun.train.Model(network()), sgd()()))
    for name, one, other in zip(sizes, expected, found, strict=True):
        np.testing.assert_allclose(other[0], one[0], rtol=3e-6, atol=1e-5, err_msg=str(name))
        assert_close(other[1], one[1], 1e-5)


def check_one_epoch_of_a_generator():
    def train(model):
        compiled(model, "adam")
        return [model.fit(x, y, **fit_arguments | {"epochs": 1}) and weights(model) for _ in range(2)]

    expected, model = alone(train), compiled(hpcrun.train.Model(network()), "adam")
    model.fit(generator())
    assert_close(weights(model), expected[0])
    model.fit(generator(), steps_per_epoch=3, initial_epoch=2, epochs=3)  # epochs that were done elsewhere
    assert_close(weights(model), expected[1])


def check_validation_of_every_epoch():
    sources = [((x, y), {}), (Batches(), {}), ((x, y), {"validation_steps": 1}), ((x[:3], y[:3]), {})]
    for source, options in sources[:2] if backend == "jax" else sources:
        given = {**fit_arguments, "epochs": 3, "validation_data": source, **options}
        expected = on_one_rank(lambda given=given: logs(compiled(network(), "sgd").fit(x, y, **given)))
        found = compiled(hpcrun.train.Model(network()), "sgd").fit(x, y, **given)
        for name, values in expected.items():
            assert_close(found.history[name], values, 1e-5)


def check_shuffles_are_equal():
    model = compiled(hpcrun.train.Model(network()), "adam")
    history = model.fit(x, y, batch_size=8, epochs=3, validation_data=(x, y)).history
    assert_close(history["val_loss"][-1], model.evaluate(x, y)[0], 1e-6)
    expected = np.multiply(history["val_accuracy"], len(x))
    assert_close(expected, np.round(expected), 1e-3)
    model.fit(Batches(), epochs=2, validation_data=(x, y))
    assert len(set(world().comm.allgather(weights(model).tobytes()))) == 1


def check_class_and_sample_weights():
    weight = np.random.default_rng(3).uniform(size=len(x)).astype("float32")

    def train(model, *last):
        model.compile("sgd", crossentropy(), weighted_metrics=["accuracy"])
        model.fit(x, y, **fit_arguments, sample_weight=weight)
        model.fit(x, y, **fit_arguments, class_weight={0: 0.5, 1: 2.0})
        trained = weights(model)
        model.fit(*last, shuffle=False, verbose=0, class_weight={0: 0.5, 1: 2.0})
        return trained, weights(model)

    expected, found = alone(lambda model: train(model, x, y, 8)), train(hpcrun.train.Model(network()), Batches())
    assert_close(found[0], expected[0])
    assert_close(found[1], expected[1])


def check_several_outputs_and_reductions():
    def build():
        keras.utils.set_random_seed(1)
        inputs = keras.Input((6,))
        hidden = layers.Dense(5, activation="tanh")(inputs)
        outputs = {"a": layers.Dense(3, name="a")(hidden), "b": layers.Dense(1, name="b")(hidden)}
        return keras.Model(inputs, outputs)

    weight = np.random.default_rng(3).uniform(size=len(x)).astype("float32")
    targets = {"a": y, "b": x[:, :1]}
    losses = {
        "a": keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight"),
        "b": keras.losses.MeanSquaredError(reduction="sum"),
    }
    for samples in (21, 15):  # of 15, rank 0 of 2 gets 4 and 4, and rank 1 gets 4 and 3: static and varying shapes

        def train(model, samples=samples):
            model.compile("sgd", losses, loss_weights={"a": 0.7, "b": 0.02}, metrics={"a": "accuracy", "b": "mae"})
            some = {name: target[:samples] for name, target in targets.items()}
            history = model.fit(x[:samples], some, **fit_arguments, sample_weight=weight[:samples]).history
            return weights(model), history

        (expected, history), (found, found_history) = alone(train, build), train(hpcrun.train.Model(build()))
        assert_close(found, expected)
        for name, values in history.items():
            assert_close(found_history[name], values, 1e-5)


def check_masked_sequences():
    def build():
        keras.utils.set_random_seed(1)
        recurrent = layers.SimpleRNN(4, return_sequences=True)
        return keras.Sequential([keras.Input((5,)), layers.Embedding(9, 3, mask_zero=True), recurrent, layers.Dense(1)])

    words = np.random.default_rng(1).integers(0, 9, size=(13, 5))
    targets = np.random.default_rng(2).normal(size=(13, 5, 1)).astype("float32")
    pair(
        build, {**fit_arguments, "batch_size": 4}, (words, targets), 1e-5, loss="mse", optimizer=sgd(), metrics=["mae"]
    )


def check_sparse_gradients():
    if backend != "tensorflow":  # the others have dense ones
        return

    def embedding():
        keras.utils.set_random_seed(1)
        return [keras.Input((5,)), layers.Embedding(9, 1), layers.GlobalAveragePooling1D()]

    alone = lambda: keras.Sequential(embedding())  # noqa: E731
    build = lambda: keras.Sequential([*embedding(), layers.Dense(1)])  # noqa: E731

    words = np.random.default_rng(1).integers(0, 9, size=(13, 5))  # they come more than once, and on several ranks
    targets = np.random.default_rng(2).normal(size=(13, 1)).astype("float32")
    adam, clipped = lambda: keras.optimizers.Adam(0.02), sgd(clipnorm=0.1)
    for make, optimizer, options in (
        (build, adam, {}),
        (build, clipped, {}),
        (build, clipped, {"jit_compile": True}),
        (alone, adam, {}),
    ):
        pair(
            make, {**fit_arguments, "batch_size": 4}, (words, targets), 5e-6, loss="mse", optimizer=optimizer, **options
        )
    os.environ["HPCRUN_SPARSE_AS_DENSE"] = "1"
    pair(build, {**fit_arguments, "batch_size": 4}, (words, targets), 5e-6, loss="mse", optimizer=sgd())
    del os.environ["HPCRUN_SPARSE_AS_DENSE"]


class Counting(layers.Layer):
    def __init__(self):
        super().__init__()
        self.seen = keras.metrics.Mean("seen")

    def call(self, x):
        self.seen.update_state(1.0)
        return x


def check_metrics_of_layers():
    if backend == "jax":  # where plain Keras cannot
        return

    def build():
        keras.utils.set_random_seed(1)
        return keras.Sequential([keras.Input((6,)), Counting(), layers.Dense(3)])

    def first(y_true, y_pred):
        return keras.ops.mean(y_pred[:, 0])

    pair(build, loss=crossentropy, optimizer=sgd(), metrics=lambda: [first])


def check_frozen_and_unused():
    def build():
        model = network()
        model.layers[0].trainable = False
        return model

    pair(build, loss=crossentropy, optimizer=sgd())


def check_activity_regularizer():
    def build():
        keras.utils.set_random_seed(1)
        hidden = layers.Dense(8, activity_regularizer=keras.regularizers.L2(0.1))
        return keras.Sequential([keras.Input((6,)), hidden, layers.Dense(3)])

    pair(build, loss=crossentropy, optimizer=sgd())


def check_mixed_precision():
    for policy, tolerance in {"mixed_bfloat16": 2e-2, "mixed_float16": 4e-3}.items():
        keras.config.set_dtype_policy(policy)
        try:

            def train(model, policy=policy):
                model.compile(keras.optimizers.SGD(0.1), crossentropy())
                model.fit(x, y, **fit_arguments)
                assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer) == (policy == "mixed_float16")
                return weights(model)

            expected = alone(train)
            assert_close(train(hpcrun.train.Model(network())), expected, tolerance)
        finally:
            keras.config.set_dtype_policy("float32")


def check_loss_scale_skips_together():
    model = network()
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=4.0)
    model = hpcrun.train.Model(model)
    model.compile(optimizer, crossentropy())
    before, poisoned = weights(model), x.copy()
    poisoned[size - 1] = np.inf  # one sample, of the last rank
    model.fit(poisoned[:8], y[:8], **fit_arguments | {"epochs": 1})
    assert_close(weights(model), before, 0)
    assert float(keras.ops.convert_to_numpy(optimizer.dynamic_scale)) == 2.0


def check_distribute_false():
    def train(model):
        batches = np.concatenate([x[:4]] * size), np.concatenate([y[:4]] * size)
        compiled(model, "adam").fit(*batches, **fit_arguments | {"batch_size": 4 * size})
        return weights(model), model.evaluate(x, y, verbose=0)

    expected, evaluation = alone(train)
    model = compiled(hpcrun.train.Model(network()), "adam")
    model.fit(x[:4], y[:4], **fit_arguments | {"batch_size": 4}, distribute=False)
    assert_close(weights(model), expected)
    assert_close(model.evaluate(x, y, distribute=False), evaluation, 1e-5)


def check_loaded_weights():
    model = compiled(hpcrun.train.Model(network(seed=1 + rank)), "adam")
    model.set_weights(network(seed=3 + rank).get_weights())
    assert_close(weights(model), weights(network(seed=3)), 0)


def check_all_ranks_stop_together():
    class Nervous(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.seen = batch
            if rank == size - 1 and batch == 1:
                self.model.stop_training = True

    nervous = Nervous()
    model = compiled(hpcrun.train.Model(network()), "sgd")
    assert len(model.fit(x, y, batch_size=2, epochs=9, callbacks=nervous).epoch) == 1
    assert nervous.seen == (2 if size > 1 else 1)


def check_disagreements():
    if size == 1:
        return
    model = compiled(hpcrun.train.Model(network()), "sgd")
    assert_refused("disagree about the batch size", model.fit, x, y, batch_size=8 + rank)
    assert_refused(
        "disagree about the number of samples", model.fit, x[: 21 - 8 * rank], y[: 21 - 8 * rank], batch_size=8
    )
    assert_refused("disagree about the number of epochs", model.fit, x, y, epochs=1 + rank)
    assert_refused("disagree about the checksums of the first batch", model.fit, ((x * rank, y) for _ in range(3)))
    assert_refused("disagree about the number of training steps", model.fit, ((x, y) for _ in range(2 + rank)))
    assert_refused("cannot distribute a int", model.fit, 3)


failed = run_checks(__name__, sys.argv[1:])
print("RESULT", json.dumps(failed), flush=True)
sys.exit(len(failed))
