"""Checks of virtual workers, on one and two ranks; failures are printed. `train` prints the weights of one training."""

import itertools
import json
import os
import sys
from contextlib import contextmanager

import keras
import numpy as np
from cases import compiled, data, network, optimizers, weights
from checks import assert_refused, run_checks

import hpcrun.train
from hpcrun.errors import HpcrunError
from hpcrun.train.gradients.codecs import CODECS, create_codec
from hpcrun.train.gradients.virtual_workers import VirtualReducer, split_workers
from hpcrun.train.gradients.worker_comm import WorkerGroup
from hpcrun.train.normalization import SyncBatchNormalization
from hpcrun.train.ranks.world import world

hpcrun.train.init()
rank, size, comm = hpcrun.train.rank(), hpcrun.train.size(), world().comm
SHAPES = [(60, 41), (41,), (3, 3, 20, 16)]


@contextmanager
def settings(**variables):
    names = {f"HPCRUN_{name.upper()}": str(value) for name, value in variables.items()}
    os.environ.update(names)
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]


def train(workers, codec="none", samples=64, batch=16, optimizer="sgd", make=network, **options):
    """Return the weights and the history of a short training."""
    x, y = data(samples)
    with settings(virtual_workers=workers, compress=codec, min_size=0, powersgd_rank=1):
        keras.utils.set_random_seed(2)
        model = compiled(hpcrun.train.Model(make()), optimizers()[optimizer], **options)
        history = model.fit(x, y, batch_size=batch, shuffle=False, epochs=2, verbose=0).history
    return weights(model), history


def gradients(worker, step=0):
    draw = np.random.default_rng((worker, step))
    return [draw.normal(size=shape).astype("float32") for shape in SHAPES]


def reduce(reducer, step=0):
    """Return the sum of the gradients of all workers, each of which has a number of its own."""
    numbers = [rank + size * number for number in range(reducer.workers)]
    given = [gradient for number in numbers for gradient in gradients(number, step)]
    total = size * reducer.workers
    return [array.copy() for array in reducer.reduce_workers(given, np.ones(reducer.workers), total)]


def check_weights_equal_those_without_workers():
    for (samples, batch), optimizer in itertools.product([(64, 16), (44, 16), (17, 8)], ("sgd", "adam")):
        expected, history = train(1, samples=samples, batch=batch, optimizer=optimizer)
        found, found_history = train(4, samples=samples, batch=batch, optimizer=optimizer)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        for name, values in history.items():
            np.testing.assert_allclose(found_history[name], values, rtol=1e-4, atol=1e-5)


def check_steps_outside_graphs():
    expected, _ = train(1)
    for options in ({"run_eagerly": True}, {"jit_compile": True}):
        found, _ = train(2, **options)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def check_all_ranks_have_the_same_bits():
    for codec in CODECS:
        found, _ = train(2, codec)
        assert len(set(comm.allgather(found.tobytes()))) == 1, codec


def check_codecs_round_the_gradients_of_each_worker():
    exact, _ = train(4)
    for codec in ("ternary", "powersgd", "bf16", "fp16"):
        found, _ = train(4, codec)
        assert not np.allclose(found, exact, rtol=1e-4, atol=1e-5), codec
        assert np.isfinite(found).all()


def check_the_scale_is_shared_and_draws_differ():
    with settings(compress="ternary", min_size=100, clip_factor=0):
        reducer = VirtualReducer(comm, 4)
    total = reduce(reducer)
    scale = max(np.abs(gradients(worker)[0]).max() for worker in range(4 * size)) / np.float32(4 * size)
    counts = total[0] / scale
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-3)
    with settings(compress="ternary", min_size=100):
        reducer = VirtualReducer(comm, 4)
    same = gradients(0) * 4
    found = reducer.reduce_workers(same, np.ones(4), 4 * size)[0]
    assert len(np.unique(np.round(found / np.abs(found[found != 0]).min()))) > 3  # equal gradients, other draws


def check_each_worker_keeps_its_residuals():
    with settings(compress="ternary", min_size=100, error_feedback=1, clip_factor=0):
        reducer = VirtualReducer(comm, 2)
        sent = sum(reduce(reducer, step)[0] for step in range(5))
        states = comm.allgather(reducer.allreduce.state())
        kept = sum(state[2] for state in split_workers(states))
    expected = sum(gradients(worker, step)[0] for worker in range(2 * size) for step in range(5)) / (2 * size)
    np.testing.assert_allclose(sent + kept, expected, atol=1e-4)


def check_a_restored_worker_goes_on_with_the_same_bits():
    for codec in ("ternary", "powersgd"):
        with settings(compress=codec, min_size=100, error_feedback=1):
            whole, cut = VirtualReducer(comm, 2), VirtualReducer(comm, 2)
            for step in range(3):
                reduce(whole, step)
            states = split_workers(comm.allgather(whole.allreduce.state()))
            cut.allreduce.restore(states)
            for found, expected in zip(reduce(cut, 3), reduce(whole, 3), strict=True):
                np.testing.assert_array_equal(found, expected)
            merged = create_codec(comm)
            merged.restore(states)  # without virtual workers
            assert size > 1 or len(states) == 2


def check_sent_bytes_are_those_of_a_rank():
    with settings(compress="none"):
        reducer = VirtualReducer(comm, 2)
    reduce(reducer)
    numbers, workers = sum(map(np.size, gradients(0))), 2 * size
    assert abs(reducer.allreduce.sent_bytes / (8 * numbers * (workers - 1) / workers) - 1) < 0.01


def check_an_error_of_one_worker_is_raised():
    group = WorkerGroup(comm, 2)

    def fail(number):
        if number:
            raise HpcrunError("of worker 1", hint="none")
        group.comms[0].Allreduce(None, np.zeros(1))  # waits for worker 1

    assert_refused("of worker 1", group.run, fail)


def check_moving_statistics_are_means():
    def normalized():
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Dense(8), keras.layers.BatchNormalization(), keras.layers.Dense(3)]
        return keras.Sequential([keras.Input((6,)), *layers])

    x, y = data(16)
    with settings(virtual_workers=2):
        model = compiled(hpcrun.train.Model(normalized()), keras.optimizers.SGD(0.0))
        model.fit(x, y, batch_size=16, shuffle=False, verbose=0)
    features = keras.ops.convert_to_numpy(normalized().layers[0](x))  # (16, 8)
    parts = [features[worker :: 2 * size] for worker in range(2 * size)]
    expected = 0.01 * np.mean([part.mean(0) for part in parts], 0), 0.99 + 0.01 * np.mean([p.var(0) for p in parts], 0)
    for variable, value in zip(model.layers[1].non_trainable_variables, expected, strict=True):
        np.testing.assert_allclose(keras.ops.convert_to_numpy(variable.value), value, rtol=1e-4, atol=1e-6)


def check_embeddings_are_dense():
    def embedding():
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Embedding(5, 4), keras.layers.Flatten(), keras.layers.Dense(3)]
        return keras.Sequential([keras.Input((6,), dtype="int32"), *layers])

    x, y = np.random.default_rng(0).integers(5, size=(16, 6)), data(16)[1]
    found = []
    for workers in (1, 2):
        with settings(virtual_workers=workers):
            model = compiled(hpcrun.train.Model(embedding()), keras.optimizers.SGD(0.1))
            model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
            found.append(weights(model))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-6)


def check_refusals():
    workers = 4 * size
    assert_refused(f"a batch of 18 samples does not divide among {workers} workers", train, 4, samples=36, batch=18)
    with settings(overlap=1):
        assert_refused("HPCRUN_OVERLAP=1 has no effect with --virtual-workers=2", train, 2)
    assert_refused("HPCRUN_VIRTUAL_WORKERS=0 is not a whole number of virtual workers from 1", train, 0)
    with settings(virtual_workers=2):
        optimizer = hpcrun.train.Optimizer(keras.optimizers.SGD(0.1))
        variable = keras.Variable([1.0])
        assert_refused("an optimizer step outside of fit has no batch", optimizer.apply, [variable.value], [variable])

    def synchronized():
        layers = [SyncBatchNormalization(), keras.layers.Dense(3)]
        return keras.Sequential([keras.Input((6,)), *layers])

    assert_refused("needs the statistics of the whole batch", train, 2, make=synchronized)

    class TwoSteps(keras.Sequential):
        def train_step(self, batch):
            variables = self.trainable_variables
            for _ in range(2):
                self.optimizer.apply([keras.ops.zeros_like(variable.value) for variable in variables], variables)
            return {"loss": 0.0}

    def two_steps():
        return TwoSteps([keras.Input((6,)), keras.layers.Dense(3)])

    assert_refused("a train_step with exactly one optimizer step, and this one takes 2", train, 2, make=two_steps)


def check_masked_losses_are_refused():
    def masked():
        layers = [keras.layers.Masking(), keras.layers.LSTM(3, return_sequences=True), keras.layers.Dense(2)]
        return keras.Sequential([keras.Input((4, 6)), *layers])

    x, y = np.ones((16, 4, 6), "float32"), np.zeros((16, 4), "int64")
    with settings(virtual_workers=2):
        model = hpcrun.train.Model(masked())
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        assert_refused("virtual workers cannot", model.fit, x, y, batch_size=8, verbose=0)


if sys.argv[1:2] == ["train"]:
    found, _ = train(int(sys.argv[2]), sys.argv[3], samples=64, batch=16)
    print("RESULT", json.dumps([float(number).hex() for number in found]), flush=True)
else:
    print("RESULT", json.dumps(run_checks(__name__, sys.argv[1:])), flush=True)
