"""Checks of synchronized batch normalization against Keras's layer on the whole batch."""

import contextlib
import functools
import json
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
from checks import on_one_rank, run_checks
from keras import ops

import hpcrun.train
from hpcrun.errors import HpcrunError
from hpcrun.train.data.batch_share import use_share
from hpcrun.train.ranks.world import world

rank, size = hpcrun.train.rank(), hpcrun.train.size()
folder, backend = Path(sys.argv[1]), keras.backend.backend()
SAMPLES = (7, 8, 2, 1)  # with 2 and 3 ranks: uneven, even, and fewer samples than ranks
EPSILON = 0.1  # few samples have small variances, and Keras's 1e-3 would magnify rounding errors by 30
EXACT = size > 1 or backend != "torch"  # where Keras's layer computes E[x^2] - E[x]^2
shifted: dict[str, float] = {}


def assert_close(name, found, expected, tolerance=1e-5):
    found, expected = (np.asarray(ops.convert_to_numpy(value), np.float64) for value in (found, expected))
    distance = float(np.max(np.abs(found - expected) / np.maximum(1, np.abs(expected)), initial=0))
    shifted[name] = max(shifted.get(name, 0), distance)
    assert found.shape == expected.shape, name
    assert distance < tolerance, f"{name}: {distance}"  # fails for NaN, too


def layers(like, dtype=None, **options):
    """Return Keras's layer and hpcrun's, with equal non-initial weights."""
    draw = np.random.default_rng(2)
    both: list[keras.layers.Layer] = []
    for kind in (keras.layers.BatchNormalization, hpcrun.train.SyncBatchNormalization):
        layer = kind(momentum=0.5, dtype=dtype, **options)
        layer.build(like.shape)
        if not both:
            values = [draw.uniform(0.5, 2, size=v.shape) for v in layer.variables]
        for variable, value in zip(layer.variables, values, strict=True):
            variable.assign(value)
        both.append(layer)
    return both


def step(layer, x, upstream, mask, share, options):
    """Return outputs, gradients of x, gradients of weights, and the layer's statistics after one training step."""
    given = {"training": True} if mask is None else {"training": True, "mask": ops.convert_to_tensor(mask)}
    samples = len(x)

    def loss_of(outputs):  # a mean over samples of a nonlinear function of the outputs
        return ops.sum(ops.sin(ops.cast(outputs, "float32")) * ops.convert_to_tensor(upstream)) / samples

    counting = contextlib.nullcontext() if share is None else use_share(share)
    x = ops.convert_to_tensor(x)
    if backend == "tensorflow":
        import tensorflow as tf

        def compute(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                outputs = layer(x, **given)
                loss = loss_of(outputs)
            return outputs, *tape.gradient(loss, [x, *[v.value for v in layer.trainable_variables]])

        with counting:
            outputs, to_x, *to_weights = (compute if options == "eager" else tf.function(compute))(x)
        state = [v.value for v in layer.non_trainable_variables]
    elif backend == "torch":
        x = x.requires_grad_()
        with counting:
            outputs = layer(x, **given)
            weights = [v.value for v in layer.trainable_variables]
            for weight in weights:
                weight.grad = None
            loss_of(outputs).backward()
        to_x, to_weights = x.grad, [weight.grad for weight in weights]
        state = [v.value for v in layer.non_trainable_variables]
    else:
        import jax

        def loss(weights, state, x):
            outputs, state = layer.stateless_call(weights, state, x, **given)
            return loss_of(outputs), (outputs, state)

        gradients = jax.grad(loss, argnums=(0, 2), has_aux=True)
        weights = [v.value for v in layer.trainable_variables]
        with counting:
            gradients = gradients if options == "eager" else jax.jit(gradients)
            before = [v.value for v in layer.non_trainable_variables]
            (to_weights, to_x), (outputs, state) = gradients(weights, before, x)
    return [
        keras.tree.map_structure(ops.convert_to_numpy, tree) for tree in (outputs, to_x, list(to_weights), list(state))
    ]


def compare(case, x, mask=None, dtype=None, options="graph", shares=True, tolerance=1e-5, **arguments):
    upstream = np.random.default_rng(3).normal(size=x.shape).astype("float32")
    plain, local = layers(x, dtype, **arguments)
    outputs, to_x, to_weights, state = on_one_rank(lambda: step(plain, x, upstream, mask, None, options))
    indices = np.arange(len(x))[rank::size]
    share = len(indices) / len(x)
    shard = indices if len(indices) else np.array([len(x) - 1])  # a placeholder with weight 0
    result = step(
        local, x[shard], upstream[shard], None if mask is None else mask[shard], share if shares else None, options
    )
    if share:
        assert_close(f"{case} outputs", result[0], outputs[shard], tolerance)
        assert_close(f"{case} gradient of inputs", result[1] * share, to_x[shard], tolerance)
    else:
        assert not np.isnan(result[0]).any()
    for one, all_ranks in zip(result[2], to_weights, strict=True):
        assert_close(
            f"{case} gradients of weights", hpcrun.train.allreduce(share * one.astype(np.float64)), all_ranks, tolerance
        )
    for one, all_ranks in zip(result[3], state, strict=True):
        assert_close(f"{case} statistics", one, all_ranks, tolerance)
        assert len(set(world().comm.allgather(one.tobytes()))) == 1


def draw(*shape, offset=0.5):
    return (np.random.default_rng(shape[0]).normal(size=shape) * 2 + offset).astype("float32")


def check_forward_and_backward():
    for samples in SAMPLES:
        compare("dense", draw(samples, 5), epsilon=EPSILON)
    for samples in (7, 2):
        compare("images", draw(samples, 4, 4, 3), epsilon=EPSILON)
    compare("eager", draw(7, 4, 3), options="eager")
    compare("channels first", draw(7, 3, 4, 4), axis=1)
    compare("no scale", draw(7, 5), scale=False, center=False)
    if backend != "jax":  # JAX has float64 only with an option
        compare("float64", draw(7, 5).astype("float64"), dtype="float64")
    compare("renorm", draw(7, 5), renorm=True, renorm_clipping={"rmax": 1.5, "rmin": 0.5, "dmax": 2.0})
    compare("all alike", draw(2 * size, 5), shares=False)


def check_masks():
    for samples in (7, 2):
        mask = np.random.default_rng(samples).uniform(size=(samples, 6)) < 0.6
        compare("mask", draw(samples, 6, 3), mask, epsilon=EPSILON)
        mask[::size] = False  # masks all samples of rank 0
        compare("mask of a whole rank", draw(samples, 6, 3), mask, epsilon=EPSILON)
        compare("mask of all", draw(samples, 6, 3), np.zeros_like(mask), epsilon=1)  # the variance is zero
    if backend != "torch":  # Keras's layer fails on PyTorch
        compare("mask, channels first", draw(7, 6, 3), np.random.default_rng(1).uniform(size=(7, 6)) < 0.6, axis=1)


def check_mixed_precision():
    for policy in ("mixed_float16", "mixed_bfloat16"):
        # The outputs are rounded to 8 or 11 bits, alike in both; sums of rounded gradients are not alike.
        compare(policy, draw(7, 4, 3), dtype=policy, tolerance=2e-2)
    _, local = layers(x := draw(6, 3, offset=300), "mixed_float16")
    before = [ops.convert_to_numpy(v) for v in local.non_trainable_variables]
    with use_share(len(x[rank::size]) / len(x)):
        local(x[rank::size].astype("float16"), training=True)
    mean, variance = (
        2 * ops.convert_to_numpy(v) - old for v, old in zip(local.non_trainable_variables, before, strict=True)
    )
    seen = x.astype("float16").astype("float64")
    assert_close("statistics in float32: mean", mean, seen.mean(0), 1e-6)
    if EXACT:
        assert_close("statistics in float32: variance", variance, seen.var(0), 1e-4)


def check_statistics_far_from_zero():
    x = draw(9, 5, offset=3000)
    _, local = layers(x)
    before = ops.convert_to_numpy(local.moving_variance)
    with use_share(len(x[rank::size]) / len(x)):
        local(x[rank::size], training=True)
    variance = 2 * ops.convert_to_numpy(local.moving_variance) - before
    if EXACT:
        assert_close("variance far from 0", variance, x.astype("float64").var(0), 1e-3)  # E[x^2] - E[x]^2 misses by 1


def check_rank_without_samples():
    if size == 1:
        return
    x = draw(2, 4)
    _, local = layers(x)
    worst = np.full_like(x, np.nan) if rank == size - 1 else x
    result = step(local, worst, np.ones_like(x), None, 0.0 if rank == size - 1 else 1 / (size - 1), "graph")
    assert (
        np.isfinite([value for arrays in result[2:] for array in arrays for value in array.ravel()]).all()
        or rank == size - 1
    )
    assert np.isfinite(np.concatenate([array.ravel() for array in result[3]])).all()
    assert np.isfinite(result[1]).all() or rank == size - 1


def check_inference_and_frozen():
    x = draw(5, 4)
    plain, local = layers(x)
    if rank == 0:  # not a collective: only rank 0 runs it
        assert_close("inference", local(x, training=False), plain(x, training=False), 1e-12)
        local.trainable = plain.trainable = False
        assert_close("frozen", local(x, training=True), plain(x, training=True), 1e-12)


def check_synchronization_in_branches():
    """Layers without data dependencies must communicate in the same order on all ranks."""

    def build(kind):
        keras.utils.set_random_seed(1)
        inputs = keras.Input((6,))
        branches = [kind(name=f"b{k}")(keras.layers.Dense(4, name=f"d{k}")(inputs)) for k in range(6)]
        return keras.Model(inputs, keras.layers.Add()(branches))

    x, upstream = draw(7, 6), draw(7, 4)
    plain, local = (build(kind) for kind in (keras.layers.BatchNormalization, hpcrun.train.SyncBatchNormalization))
    indices = np.arange(7)[rank::size]
    share = len(indices) / 7
    _, _, expected, state = on_one_rank(lambda: step(plain, x, upstream, None, None, "graph"))
    _, _, found, statistics = step(local, x[indices], upstream[indices], None, share, "graph")
    for one, all_ranks in zip(found, expected, strict=True):
        assert_close("branches gradients", hpcrun.train.allreduce(share * one), all_ranks)
    for one, all_ranks in zip(statistics, state, strict=True):
        assert_close("branches statistics", one, all_ranks)


def network(kind, seed=1):
    keras.utils.set_random_seed(seed)
    inputs = keras.Input((6, 6, 2))
    x = kind(momentum=0.7, name="b1")(keras.layers.Conv2D(4, 3, name="c1")(inputs))
    short = kind(momentum=0.7, name="b2")(keras.layers.Conv2D(4, 1, name="c2")(x))
    x = keras.layers.ReLU()(kind(momentum=0.7, name="b3")(keras.layers.Conv2D(4, 3, padding="same", name="c3")(x)))
    outputs = keras.layers.Dense(3)(keras.layers.GlobalAveragePooling2D()(keras.layers.Add()([x, short])))
    return keras.Model(inputs, outputs)


def check_fit():
    more = [(17, 5, {"run_eagerly": True})] if backend == "tensorflow" else []
    for samples, batch, options in [(23, 7, {}), *more]:
        x, y = draw(samples, 6, 6, 2), np.arange(samples) % 3

        def train(model, x=x, y=y, batch=batch, options=options):
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss, metrics=["accuracy"], **options)
            fit_arguments: dict[str, Any] = {
                "validation_data": (x[:4], y[:4]),
                "epochs": 3,
                "shuffle": False,
                "verbose": 0,
            }
            history = model.fit(x, y, batch_size=batch, **fit_arguments).history
            losses = [value for name in ("loss", "val_loss") for value in history[name]]
            evaluation = model.evaluate(x, y, batch_size=batch, verbose=0)
            weights = [[w.numpy() for w in each] for each in (model.trainable_weights, model.non_trainable_weights)]
            return weights, losses, evaluation

        expected = on_one_rank(lambda train=train: train(network(keras.layers.BatchNormalization)))
        local = hpcrun.train.Model(network(hpcrun.train.SyncBatchNormalization))
        found = train(local)
        for name, those, others in zip(("trainable", "non_trainable"), found[0], expected[0], strict=True):
            for one, other in zip(those, others, strict=True):
                assert_close(f"fit {name}", one, other)
        assert_close("fit history", found[1], expected[1])
        assert_close("fit evaluate", found[2], expected[2])
    local.save(folder / "model.keras")
    hpcrun.train.barrier()
    loaded = keras.saving.load_model(folder / "model.keras")
    assert type(loaded.get_layer("b1")) is hpcrun.train.SyncBatchNormalization
    assert_close("loaded", loaded.predict(x, verbose=0), local.predict(x, batch_size=4), 1e-6)
    as_parent = keras.layers.BatchNormalization.from_config(local.get_layer("b1").get_config())
    assert as_parent.momentum == 0.7


class Own(keras.layers.BatchNormalization):
    """A custom layer that synchronizes."""

    def __init__(self, **options):
        super().__init__(synchronized=True, **options)


class Lazy(keras.Model):
    """A model that creates its layers when it is built, one of them a model, with masks."""

    def __init__(self, synchronized):
        super().__init__()
        self.options = {"momentum": 0.6, "synchronized": synchronized}

    def build(self, shape):
        inner = [keras.layers.Dense(5), keras.layers.BatchNormalization(**self.options), keras.layers.ReLU()]
        self.inner = keras.Sequential([keras.Input((4,)), *inner])
        self.masking = keras.layers.Masking()
        self.normalize = keras.layers.BatchNormalization(**self.options)
        self.frozen = keras.layers.BatchNormalization(**self.options, trainable=False)
        self.head = keras.layers.Dense(3)
        self.inner.build((None, 4))
        self.normalize.build(shape)
        self.frozen.build(shape)
        self.head.build((None, 5))
        super().build(shape)

    def call(self, x, training=False):
        masked = self.masking(x)
        x = self.normalize(masked, training=training, mask=keras.ops.any(x != 0, axis=-1))
        x = self.frozen(x, training=training)
        return self.head(self.inner(keras.ops.mean(x, axis=1), training=training))


def check_keras_synchronized_layers():
    """`keras.layers.BatchNormalization(synchronized=True)`, which Keras supports on TensorFlow only."""
    if backend != "tensorflow":
        return
    plain = functools.partial(keras.layers.BatchNormalization)
    synchronized = functools.partial(keras.layers.BatchNormalization, synchronized=True)
    images, words = draw(23, 6, 6, 2), draw(23, 5, 4)
    words[:, 3:] = 0  # masked
    words[3, 1:] = 0
    frozen = [network(plain), network(synchronized)]
    for model in frozen:
        model.get_layer("b2").trainable = False
    inner = [keras.Sequential([model, keras.layers.Softmax()]) for model in (network(plain), network(synchronized))]
    cases = {
        "fit": (images, network(plain), network(synchronized)),
        "own class": (images, network(plain), network(Own)),
        "clone": (images, network(plain), keras.models.clone_model(network(synchronized))),
        "frozen": (images, *frozen),
        "nested": (images, *inner),
        "lazy": (words, Lazy(synchronized=False), Lazy(synchronized=True)),
    }
    for case, (x, one, several) in cases.items():
        y = np.arange(len(x)) % 3
        if case == "clone":
            several.set_weights(network(plain).get_weights())
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=case != "nested")

        def train(model, case=case, x=x, y=y, loss=loss):
            fit_arguments: dict[str, Any] = {"validation_data": (x[:4], y[:4]), "epochs": 3, "shuffle": False}
            model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss, metrics=["accuracy"])
            assert not (model.jit_compile and isinstance(model, hpcrun.train.Model) and size > 1)
            keras.utils.set_random_seed(3)  # of the weights created next
            history = model.fit(x, y, batch_size=7, verbose=0, **fit_arguments).history
            before = model.get_weights()
            model.evaluate(x, y, batch_size=7, verbose=0)
            assert all((a == b).all() for a, b in zip(before, model.get_weights(), strict=True)), case
            losses = [value for name in ("loss", "val_loss") for value in history[name]]
            return [w.numpy() for w in model.weights], losses

        expected = on_one_rank(lambda train=train, one=one: train(one))
        found = train(hpcrun.train.Model(several))
        for a, b in zip(found[0], expected[0], strict=True):
            assert_close(f"synchronized=True, {case}", a, b)
        assert_close(f"synchronized=True, history of {case}", found[1], expected[1])
    hpcrun.train.Model(cases["fit"][2]).save(folder / "synchronized.keras")
    hpcrun.train.barrier()
    loaded = keras.saving.load_model(folder / "synchronized.keras")
    assert type(loaded.get_layer("b1")) is keras.layers.BatchNormalization
    assert loaded.get_layer("b1").synchronized
    assert_close("loaded", loaded.predict(images, verbose=0), cases["fit"][2].predict(images, verbose=0), 1e-6)


def check_synchronized_in_a_custom_loop():
    if backend != "tensorflow":
        return
    import tensorflow as tf

    x = draw(4 * size, 6, 6, 2)
    found = []
    for shard, kind in ((x, False), (x[rank::size], True)):
        model = network(functools.partial(keras.layers.BatchNormalization, synchronized=kind))
        optimizer = keras.optimizers.SGD(0.05)
        optimizer = hpcrun.train.Optimizer(optimizer) if kind else optimizer

        @tf.function
        def train(model, optimizer, shard):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.sin(model(shard, training=True)))
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

        for _ in range(3):
            train(model, optimizer, tf.constant(shard))
        found.append(model.get_weights())
    for one, other in zip(*found, strict=True):
        assert_close("a custom loop", one, other)


def check_training_with_keras():
    """All ranks have the same samples, so that each rank's statistics are those of the whole batch."""
    x, y = draw(14, 6, 6, 2), np.arange(14) % 3
    found = []
    for kind in (keras.layers.BatchNormalization, hpcrun.train.SyncBatchNormalization):
        model = network(kind)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss)
        model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
        found.append(model.get_weights())
    assert model.get_layer("b1").supports_jit == (backend != "tensorflow" or size == 1)
    assert not (model.jit_compile and backend == "tensorflow" and size > 1)
    for one, other in zip(*found, strict=True):
        assert_close("in Keras's own training", one, other)


def check_refusals():
    if size == 1 or backend != "tensorflow":
        return
    import tensorflow as tf

    _, local = layers(x := draw(4, 3))
    for call in (local, keras.Sequential([local])):
        try:
            tf.function(functools.partial(call, training=True), jit_compile=True, autograph=False)(x)
        except HpcrunError as error:
            assert ("XLA" in str(error), bool(error.hint)) == (True, True), error  # noqa: PT017
        else:
            raise AssertionError("XLA was not refused")


failed = run_checks(__name__, sys.argv[2:])
print("RESULT", json.dumps({"failed": failed, "size": size, "far": shifted}), flush=True)
sys.exit(len(failed))
