"""Checks of shuffles, metrics, callbacks, saving, custom loops and refusals, on a few ranks."""

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from cases import compiled, data, logs, network, weights
from checks import assert_refused, on_one_rank, run_checks

import hpcrun.train
from hpcrun.train.data.shards import Shard
from hpcrun.train.data.tf_data import shard_dataset
from hpcrun.train.gradients.allreduce import CHUNK_BYTES
from hpcrun.train.gradients.reducer import Reducer
from hpcrun.train.ranks.world import world

hpcrun.train.init()
rank, size = hpcrun.train.rank(), hpcrun.train.size()
folder = Path(sys.argv[1])
x, y = data(21)
fit_arguments: dict[str, Any] = {"batch_size": 8, "shuffle": False, "epochs": 2, "verbose": 0}


def assert_close(found, expected, tolerance=2e-6):
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=0, atol=tolerance)


def same_everywhere(value):
    assert len(set(world().comm.allgather(value))) == 1, value


def trained(model, *args, **options):
    """Compile and train a model; return its weights."""
    compiled(model, *args, **options).fit(x, y, **fit_arguments)
    return weights(model)


def pair(optimizer, build=network, **options):
    """Train plain Keras on one rank and hpcrun.train on all; return both models' weights."""
    plain = on_one_rank(lambda: trained(build(), optimizer(), **options))
    return plain, trained(hpcrun.train.Model(build()), optimizer(), **options)


def check_reducer():
    shares = [(r + 1) / sum(range(1, size + 1)) for r in range(size)]
    for chunk in (CHUNK_BYTES, 64, 0, None):
        values = (chunk or CHUNK_BYTES) // 4  # in a chunk; thousands of chunks take minutes where ranks share cores
        shapes = [(values // 3, 4), (3,), (), (values + 5,), (64,)]
        local = [np.full(shape, rank + 1.0, "float32") for shape in shapes]
        sums = Reducer(world().comm, chunk)(local, shares[rank])
        for total, gradient in zip(sums, local, strict=True):
            expected = sum(share * (r + 1) for r, share in enumerate(shares))
            assert_close(total, np.full(gradient.shape, expected, "float32"))
            assert total.shape == gradient.shape
            assert total.ctypes.data % 64 == 0
            assert (gradient == rank + 1).all()
    assert_refused("add up to 1.5 batches", Reducer(world().comm), local, 1.5 / size)


def check_world():
    assert hpcrun.train.allreduce(rank) == sum(range(size))
    assert hpcrun.train.allreduce(rank == 0) == 1
    assert_close(hpcrun.train.allreduce(np.ones(2, ">f4")), np.full(2, size))  # big-endian, as in FITS and HDF5 files
    assert_close(hpcrun.train.allreduce(np.full((2, 3), 1.5)), np.full((2, 3), 1.5 * size))
    assert hpcrun.train.local_rank() == rank
    assert hpcrun.train.is_chief() == (rank == 0)
    hpcrun.train.barrier()


def check_loss_scale_and_accumulation():
    def optimizer():
        return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.05, gradient_accumulation_steps=2))

    assert_close(*pair(optimizer, steps_per_execution=2))


class NestedModel(keras.Model):
    """A subclass with a nested model."""

    def __init__(self):
        super().__init__()
        self.inner = network()

    def call(self, x):
        return self.inner(x)


def check_eager_custom_train_step():
    class Own(NestedModel):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                predicted = self(x, training=True)
                loss = self.compute_loss(x, y, predicted)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"mine": loss, **self.compute_metrics(x, y, predicted)}

    assert_close(*pair(lambda: keras.optimizers.SGD(0.1), Own, run_eagerly=True))


def check_sample_and_class_weights():
    weight = np.random.default_rng(3).uniform(size=len(x)).astype("float32")

    def train(model, **quiet):
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss, weighted_metrics=["accuracy"])
        model.fit(x, y, **fit_arguments, sample_weight=weight)
        model.fit(x, y, **fit_arguments, class_weight={0: 0.5, 1: 2.0, 2: 1.0})
        return weights(model), model.evaluate(x, y, sample_weight=weight, **quiet)

    expected = on_one_rank(lambda: train(network(), verbose=0))
    for found, right in zip(train(hpcrun.train.Model(network())), expected, strict=True):
        assert_close(found, right)


def check_batch_norm_and_metrics():
    def build():
        keras.utils.set_random_seed(5)
        layers = [keras.layers.Dense(4), keras.layers.BatchNormalization(momentum=0.5), keras.layers.Dropout(0.2)]
        return keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(1, activation="sigmoid")])

    model = hpcrun.train.Model(build())
    model.compile(
        "adam", "binary_crossentropy", metrics=["accuracy", keras.metrics.AUC(), keras.metrics.F1Score("macro")]
    )
    labels = (y > 0).astype("float32")[:, np.newaxis]
    history = model.fit(x, labels, batch_size=10, epochs=3, validation_split=0.25)  # 15 and 6 samples: last batch of 5
    same_everywhere(str(logs(history)))
    same_everywhere(model.layers[1].moving_mean.numpy().tobytes())
    same_everywhere(model.layers[0].kernel.numpy().tobytes())
    seeds = world().comm.allgather(model.layers[2].seed_generator.state.numpy().tolist())
    assert len({tuple(seed) for seed in seeds}) == size, "all ranks drop the same units"
    found = model.evaluate(x[:1], labels[:1], return_dict=True)
    assert np.isfinite(list(found.values())).all()
    plain = keras.models.clone_model(model.keras_model)
    plain.set_weights(model.get_weights())
    plain.compile(
        "adam", "binary_crossentropy", metrics=["accuracy", keras.metrics.AUC(), keras.metrics.F1Score("macro")]
    )
    assert_close(model.evaluate(x, labels, batch_size=4), plain.evaluate(x, labels, batch_size=4, verbose=0))
    assert_close(model.predict(x[:1]), plain.predict(x[:1], verbose=0))
    batches = tf.data.Dataset.from_tensor_slices(x).batch(4)
    assert_close(model.predict(batches), plain.predict(batches, verbose=0))


def check_shuffles():
    def epoch(dataset):
        parts = [p.data.numpy() for p in dataset if p.share > 0]
        gathered = world().comm.allgather(np.concatenate(parts) if parts else np.zeros(0, int))
        assert sorted(np.concatenate(gathered).tolist()) == list(range(21))
        return np.concatenate(gathered).tolist()

    tf.random.set_seed(None)  # `set_random_seed` above would seed these shuffles
    sharded = shard_dataset(tf.data.Dataset.range(21).shuffle(21).map(lambda n: n + 0).batch(8))
    assert epoch(sharded) != epoch(sharded)
    files = tf.data.Dataset.range(3).interleave(lambda k: tf.data.Dataset.range(7 * k, 7 * k + 7).shuffle(7))
    epoch(shard_dataset(files.batch(4)))
    epoch(
        shard_dataset(
            tf.data.Dataset.sample_from_datasets([tf.data.Dataset.range(9), tf.data.Dataset.range(9, 21)]).batch(4)
        )
    )
    arrays = hpcrun.train.dataset(np.arange(21), batch_size=8, shuffle=True)
    assert epoch(arrays) != epoch(arrays)
    first = [epoch(hpcrun.train.dataset(np.arange(21), batch_size=8, shuffle=True, seed=s)) for s in (1, 1, 2)]
    assert first[0] == first[1] != first[2]
    seeded = tf.data.Dataset.range(21).shuffle(21, seed=7).batch(21)
    order = next(iter(tf.data.Dataset.range(21).shuffle(21, seed=7).batch(21))).numpy()
    assert next(iter(shard_dataset(seeded))).data.numpy().tolist() == order[rank::size].tolist()


def check_nondeterministic_orders():
    def late(number):
        time.sleep(0.02 * ((int(number) + rank) % 3 == 0))
        return number

    def slow(number):
        return tf.ensure_shape(tf.py_function(late, [number], tf.int64), [])

    def seven(k):
        return tf.data.Dataset.range(7 * k, 7 * k + 7)

    hurried = {"num_parallel_calls": 3, "deterministic": False}
    files = tf.data.Dataset.range(3)
    for numbers in (
        tf.data.Dataset.range(21).map(slow, **hurried),
        files.interleave(lambda k: seven(k).map(slow), cycle_length=3, **hurried),
        files.flat_map(lambda k: tf.data.Dataset.from_tensors(k).flat_map(lambda j: seven(j).map(slow, **hurried))),
    ):
        parts = [part.data.numpy() for part in shard_dataset(numbers.batch(4)) if part.share > 0]
        gathered = np.concatenate(world().comm.allgather(np.concatenate(parts)))
        assert sorted(gathered.tolist()) == list(range(21)), gathered
    tf.random.set_seed(None)
    assert_refused("filters at random", shard_dataset, files.filter(lambda k: tf.random.uniform([]) < 0.5).batch(4))
    shard_dataset(files.filter(lambda k: tf.random.uniform([], seed=1) < 0.5).batch(4))
    cores = os.sched_getaffinity(0)
    if len(cores) > 1:
        if rank == 0:
            os.sched_setaffinity(0, {min(cores)})
        shard_dataset(files.interleave(seven, cycle_length=2).batch(4))
        nested = files.flat_map(lambda k: tf.data.Dataset.range(1).flat_map(lambda j: files.interleave(seven)))
        for interleaved in (files.interleave(seven), nested):
            assert_refused("ranks have 1 or", shard_dataset, interleaved.batch(4))
        os.sched_setaffinity(0, cores)


def check_all_ranks_stop_together():
    class Nervous(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if rank == size - 1 and self.model.optimizer.iterations > 3:
                self.model.stop_training = True

    model = compiled(hpcrun.train.Model(network()), "sgd")
    model.fit(x, y, batch_size=8, epochs=9, callbacks=Nervous())
    assert model.optimizer.iterations == 5, "a stop is sent with the next gradients"
    early = keras.callbacks.EarlyStopping("val_accuracy", patience=1, restore_best_weights=True)
    epochs = len(model.fit(x, y, batch_size=8, epochs=30, callbacks=[early], validation_data=(x[:5], y[:5])).epoch)
    same_everywhere(epochs)
    same_everywhere(weights(model).tobytes())
    assert epochs < 30


def check_memory_mapped_arrays():
    np.save(folder / f"x{rank}.npy", x)
    mapped = np.load(folder / f"x{rank}.npy", mmap_mode="r")
    held_shuffled = fit_arguments | {"shuffle": True}
    found = []
    for images in (mapped, x):
        model = compiled(hpcrun.train.Model(network()), "sgd")
        keras.utils.set_random_seed(4)
        model.fit(images, y, **held_shuffled)
        found.append(weights(model))
    assert_close(found[0], found[1], 0)  # the order of the samples does not depend on the source


def check_static_batch_size():
    whole = tf.data.Dataset.from_tensor_slices((x[:16], y[:16])).batch(8, drop_remainder=True)

    def train(model, **options):
        compiled(model, "sgd").fit(whole, verbose=0, **options)
        return weights(model)

    expected = on_one_rank(lambda: train(network()))
    for options in ({}, {"distribute": False}):
        assert_close(train(hpcrun.train.Model(network()), **options), expected)


def check_saving():
    model = compiled(hpcrun.train.Model(network()), "adam")
    checkpoint = keras.callbacks.ModelCheckpoint(folder / "last.keras")
    log = keras.callbacks.CSVLogger(folder / "log.csv")
    model.fit(x, y, **fit_arguments, callbacks=[checkpoint, log])
    if rank == 0:  # saving is not a collective: the chief may do it alone
        model.save(folder / "alone.keras")
    model.save(folder / "all.keras")
    model.save_weights(folder / "all.weights.h5")
    model.summary()
    hpcrun.train.barrier()
    assert len((folder / "log.csv").read_text().splitlines()) == 3
    for name in ("last", "alone", "all"):
        plain = keras.saving.load_model(folder / f"{name}.keras")
        assert_close(weights(plain), weights(model), 0)
        assert type(plain.optimizer) is keras.optimizers.Adam
        assert plain.optimizer.iterations == 6
        assert "apply" not in vars(plain.optimizer)
    again = hpcrun.train.Model(keras.saving.load_model(folder / "all.keras"))  # compiled already
    again.load_weights(folder / "all.weights.h5")
    if rank > 0:
        again.optimizer.variables[2].assign(np.ones(again.optimizer.variables[2].shape))  # a wrong Adam state
    again.fit(x, y, **fit_arguments)
    plain.fit(x, y, **fit_arguments)
    assert_close(weights(again), weights(plain))


def check_resuming():
    class Crash(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    def backup():
        return keras.callbacks.BackupAndRestore(folder / "backup")

    expected = on_one_rank(lambda: trained(network(), "adam"))
    with contextlib.suppress(KeyboardInterrupt):
        compiled(hpcrun.train.Model(network()), "adam").fit(x, y, **fit_arguments, callbacks=[backup(), Crash()])
    hpcrun.train.barrier()
    model = compiled(hpcrun.train.Model(network()), "adam")
    assert model.fit(x, y, **fit_arguments, callbacks=backup()).epoch == [1]
    assert_close(weights(model), expected)


def check_custom_loop():
    plain, model = network(), network(seed=1 + rank)
    hpcrun.train.broadcast(model)
    assert_close(weights(model), weights(plain), 0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = hpcrun.train.Optimizer(keras.optimizers.SGD(0.1))
    assert hpcrun.train.Optimizer(optimizer) is optimizer
    batch = len(x) // size * size

    @tf.function
    def step(network, optimizer, x, y, *, pairs):
        with tf.GradientTape() as tape:
            value = loss(y, network(x))
        variables = network.trainable_variables
        gradients = tape.gradient(value, variables)
        if pairs:
            optimizer.apply_gradients(zip(gradients, variables, strict=True))
        else:
            optimizer.apply(gradients, variables)

    sgd = keras.optimizers.SGD(0.1)
    for pairs in (True, False):
        step(model, optimizer, x[rank:batch:size], y[rank:batch:size], pairs=pairs)
        step(plain, sgd, x[:batch], y[:batch], pairs=pairs)
        assert_close(weights(model), weights(plain))
    compiled_whole = tf.function(step.python_function, jit_compile=True, autograph=False)
    assert_refused("XLA cannot compile", compiled_whole, model, optimizer, x, y, pairs=True)


class TwoOptimizers(keras.Model):
    """Trains its halves in turn, as Keras's guide to GANs does; it is never called."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (keras.Sequential([keras.Input((6,)), keras.layers.Dense(6)]) for _ in range(2))

    def compile(self, *args, **kwargs):
        super().compile(*args, **kwargs)
        self.other_optimizers = [keras.optimizers.SGD(0.2)]

    def train_step(self, data):
        x, _ = data
        for half, optimizer in ((self.first, self.optimizer), (self.second, *self.other_optimizers)):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self.second(self.first(x)) - 1) ** 2)
            variables = half.trainable_variables
            optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


class TrainsItsHead(keras.Model):
    def __init__(self):
        super().__init__()
        self.body, self.head = keras.layers.Dense(4), keras.layers.Dense(3)

    def call(self, x):
        return self.head(self.body(x))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        variables = self.head.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


def check_custom_train_steps():
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for build in (TwoOptimizers, TrainsItsHead):
        for compiled_by_xla in (False, True):

            def train(wrap, build=build, compiled_by_xla=compiled_by_xla):
                keras.utils.set_random_seed(1)
                model = wrap(build())
                model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=compiled_by_xla)
                model.fit(x, y, **fit_arguments)
                return weights(model)

            expected = on_one_rank(lambda train=train: train(lambda model: model))
            found = train(hpcrun.train.Model)
            assert_close(found, expected)
            same_everywhere(found.tobytes())


class CustomMean(keras.metrics.Mean):
    pass


class CustomResults(NestedModel):
    """Updates its metrics itself under other names, as Keras's examples do, and returns values that are not metrics."""

    def __init__(self):
        super().__init__()
        self.doubled = CustomMean("doubled")

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(x, y, predicted)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        for metric in self.metrics:
            figures = {"loss": [loss], "doubled": [2 * loss]}.get(metric.name, [y, predicted])
            metric.update_state(*figures)
        more = {"twice": self.doubled.result(), "last": loss, "top": tf.reduce_max(x[:, 0])}
        return {**self.get_metrics_result(), **more}


class ManualSteps(TrainsItsHead):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        variables = self.head.trainable_variables
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.5 * gradient)
        return {"loss": loss}


def check_diverging_weights():
    model = hpcrun.train.Model(ManualSteps())
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    assert_refused("are not those of rank 0", model.fit, x, y, **fit_arguments)
    assert_refused("ManualSteps.train_step never updates", compiled(hpcrun.train.Model(ManualSteps()), "sgd").fit, x, y)
    for seed, eagerly, alike in ((1, True, True), (1 + rank, False, True), (1 + rank, True, False)):
        keras.utils.set_random_seed(seed)
        model = TwoOptimizers()
        model.second = keras.Sequential([keras.layers.Dense(6)])  # built in its first call, unless it is traced before
        model.compile("sgd", run_eagerly=eagerly)
        fit = hpcrun.train.Model(model).fit
        fit(x, y, **fit_arguments) if alike else assert_refused("are not those of rank 0", fit, x, y, **fit_arguments)


def check_custom_step_results():
    for samples in (21, 17):  # a last batch of five samples, and of one

        def train(model, samples=samples):
            model.build((None, 6))
            return logs(compiled(model, keras.optimizers.SGD(0.1)).fit(x[:samples], y[:samples], **fit_arguments))

        expected = on_one_rank(lambda train=train: train(CustomResults()))
        found = train(hpcrun.train.Model(CustomResults()))
        for name in ("loss", "doubled", "twice", "accuracy", "last"):
            assert_close(found[name], expected[name])
        same_everywhere(str(found["top"]))


def check_callbacks_of_predict():
    seen = []
    each = keras.callbacks.LambdaCallback(on_predict_begin=lambda logs: seen.append(rank))
    hpcrun.train.Model(network()).predict(x, callbacks=[hpcrun.train.Callback(each, all_ranks=False)])
    assert seen == [0] * (rank == 0)


def check_several_inputs():
    inputs = [keras.Input((2,)), keras.Input((3,))]
    parts = [x[:, :2], x[:, 2:5]]

    def build():
        keras.utils.set_random_seed(1)
        joined = keras.layers.Concatenate()([keras.layers.Dense(3)(each) for each in inputs])
        return keras.Model(inputs, [keras.layers.Dense(3)(joined), keras.layers.Dense(1)(joined)])

    losses = [keras.losses.SparseCategoricalCrossentropy(from_logits=True), "mse"]
    targets = [y, x[:, :1]]

    def train(model):
        model.compile(keras.optimizers.SGD(0.1), losses)
        model.fit(parts, targets, validation_data=(parts, targets), **fit_arguments)
        return weights(model)

    def train_and_predict(model):
        return train(model), model.predict(parts, verbose=0)

    model = hpcrun.train.Model(build())
    right, expected = on_one_rank(lambda: train_and_predict(build()))
    assert_close(train(model), right)
    batches = tf.data.Dataset.from_tensor_slices((tuple(parts), tuple(targets))).batch(8)
    alone = tf.data.Dataset.from_tensor_slices((tuple(parts),)).batch(8)
    for given in (parts, batches, alone, iter(batches.as_numpy_iterator())):
        for found, right in zip(model.predict(given), expected, strict=True):
            assert_close(found, right)


def check_steps_that_xla_cannot_compile():
    weight = np.random.default_rng(3).uniform(size=len(x)).astype("float32")

    def train(model):
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
        model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=True)
        model.fit(x, y, **fit_arguments, sample_weight=weight)
        return weights(model)

    assert_close(on_one_rank(lambda: train(network())), train(hpcrun.train.Model(network())))


def check_nested_model():
    model = hpcrun.train.Model(network())
    assert hpcrun.train.Model(model).keras_model is model.keras_model


def check_model_wrapped_twice():
    keras.utils.set_random_seed(1)
    plain = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1, activation="sigmoid")])
    wrapped = keras.models.clone_model(plain)
    wrapped.set_weights(plain.get_weights())
    hpcrun.train.Model(wrapped)
    model = hpcrun.train.Model(wrapped)
    labels = (y > 0).astype("float32")
    for each in (plain, model):
        each.compile("sgd", "binary_crossentropy", metrics=[keras.metrics.TruePositives(name="positives")])
    assert_close(*(each.fit(x, labels, **fit_arguments).history["positives"] for each in (model, plain)))
    assert_close(model.evaluate(x, labels), plain.evaluate(x, labels, verbose=0))


def check_initial_weights_are_broadcast():
    for use in (
        lambda model: model.evaluate(x, y),
        lambda model: model.predict(x),
        lambda model: model.train_on_batch(x[:4], y[:4]),
    ):
        model = compiled(hpcrun.train.Model(network(seed=1 + rank)), "sgd")
        use(model)
        same_everywhere(weights(model).tobytes())
    # This optimizer begins with a copy of the weights: without rank 0's copy, the others would step away.
    model = compiled(hpcrun.train.Model(network(seed=1 + rank)), keras.optimizers.ScheduleFreeAdamW(0.01))
    model.fit(x, y, **fit_arguments)
    same_everywhere(weights(model).tobytes())


def check_train_on_batch_with_xla():
    model = compiled(hpcrun.train.Model(network()), "sgd", jit_compile=True)
    model.fit(x, y, **fit_arguments)
    before = weights(model)
    model.train_on_batch(x, y)
    assert not np.array_equal(weights(model), before)
    model.compile("sgd", "mse", jit_compile=False)
    assert model.train_step.inner.__self__ is model.keras_model


def check_different_pipelines():
    def read(names):
        return slices((names, x, y)).map(lambda _, *sample: sample).batch(7)

    slices = tf.data.Dataset.from_tensor_slices
    model = compiled(hpcrun.train.Model(network()), "sgd")
    order = np.random.default_rng(rank).permutation(len(x))
    assert_refused(
        "step 1, TensorSliceDataset: {'tensors': [float32[21, 6]", model.fit, slices((x[order], y[order])).batch(7)
    )
    assert_refused(
        f"{{'num_shards': {size}, 'index': 1}} on rank 1", model.fit, slices((x, y)).shard(size, rank).batch(1)
    )
    assert_refused("step 2, BatchDataset: {'batch_size': 4", model.fit, slices((x, y)).batch(4 + rank))
    files = [f"/scratch/rank{rank}/{name}.jpg" for name in range(len(x))]
    assert_refused("strings[21]", hpcrun.train.dataset, [files[k] for k in order], y)
    assert_refused("strings[21]", model.predict, read(np.roll(files, rank)))
    rounded = np.nextafter(x, np.float32(rank))
    expected = model.evaluate(x, y, batch_size=7)
    for same in ((read(files),), (slices((rounded, y)).batch(7),), (rounded, y, 7)):
        assert_close(model.evaluate(*same), expected)


class Batches(keras.utils.PyDataset):
    """The same batch, a given number of times."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def __len__(self):
        return self.number

    def __getitem__(self, _):
        return x, y


def check_refusals():
    model = compiled(hpcrun.train.Model(network()), "sgd")
    assert_refused("not compiled", hpcrun.train.Model(network()).fit, x, y)
    assert_refused("fit was called on the Keras model", model.keras_model.fit, x, y)
    assert_refused("core.dense.Dense, which is not a model of Keras 3", hpcrun.train.Model, keras.layers.Dense(2))
    assert_refused("which is not a model of Keras 3", hpcrun.train.Model, keras.Sequential)
    assert_refused("have sample weights already", model.fit, x, y, class_weight={0: 2}, sample_weight=np.ones(len(x)))
    assert_refused("cannot distribute a object", model.fit, object())
    assert_refused("not batched", model.fit, tf.data.Dataset.from_tensor_slices((x, y)))
    assert_refused("batch_size requires arrays", model.fit, tf.data.Dataset.from_tensors((x, y)), batch_size=4)
    assert_refused("samples", model.fit, x, y[:-1])
    assert_refused("number of samples", model.predict, x[: 20 + rank])
    assert_refused("number of samples", model.evaluate, x[: 17 + rank], y[: 17 + rank], batch_size=8)
    assert_refused("batches of validation", model.fit, x, y, validation_data=Batches(2 + rank))
    assert_refused("checksum", model.fit, np.roll(x, rank, 0), y)
    assert_refused("x is a list", model.fit, [[1.0] * 6] * 4, y[:4])
    assert_refused("steps=2", model.predict, x, steps=2)
    assert_refused("sample_weight is a list", model.fit, x, y, sample_weight=[1.0] * len(x))
    assert_refused("sample_weight requires y", model.fit, x, sample_weight=np.ones(len(x)))
    assert_refused("give targets, too", model.fit, iter([(x, None, y)]))
    assert_refused("batches with a scalar", model.fit, iter([(x, y, 0.5)]))
    numbered = tf.data.Dataset.zip(tf.data.Dataset.from_tensors(x), tf.data.Dataset.range(1))
    assert_refused("it yields scalars", model.fit, numbered)
    assert_refused("batch_size=0", model.fit, x, y, batch_size=0)
    assert_refused("21 samples into 0 to train on", model.fit, x, y, validation_split=0.99)
    sparse = tf.sparse.from_dense(x)
    assert_refused("sparse", model.fit, tf.data.Dataset.from_tensor_slices((sparse, y)).batch(7))
    assert_refused("shuffle differently", model.fit, tf.data.Dataset.from_tensors((x, y)).shuffle(9, seed=rank))
    assert_refused("reduction='none'", model.compile, "sgd", keras.losses.MeanSquaredError(reduction="none"))
    model = compiled(hpcrun.train.Model(network()), "sgd")
    remembers = keras.Sequential([keras.Input((3, 2), batch_size=6), keras.layers.LSTM(2, stateful=True)])
    assert_refused("is stateful", hpcrun.train.Model(remembers).compile, "sgd", "mse")
    wrong = keras.Sequential([keras.Input((2,)), keras.layers.Dense(rank + 1)])
    assert_refused("models differ", hpcrun.train.broadcast, wrong)
    assert_refused("no variables yet", hpcrun.train.broadcast, keras.Sequential([keras.layers.Dense(2)]))

    class Largest(keras.metrics.Metric):
        def __init__(self):
            super().__init__(name="largest")
            self.value = self.add_weight(name="value", initializer="zeros")

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.value.assign(tf.maximum(self.value, tf.reduce_max(y_pred)))

        def result(self):
            return self.value

    model.compile("sgd", "sparse_categorical_crossentropy", metrics=[Largest()])
    assert_refused("may not add up", model.fit, x, y, batch_size=8)
    assert isinstance(hpcrun.train.dataset(x, y).element_spec, Shard)
    assert_refused("this rank's samples only", model.predict, hpcrun.train.dataset(x))


failed = run_checks(__name__, sys.argv[2:])
print("RESULT", json.dumps(failed), flush=True)
sys.exit(len(failed))
