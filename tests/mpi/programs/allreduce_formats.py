"""Checks of the allreduce formats, on a few ranks; failures are printed."""

import json
import os
import sys
import time
from unittest import mock

import keras
import numpy as np
from cases import compiled, data, network, weights
from checks import assert_refused, run_checks

import hpcrun.train
from hpcrun.errors import HpcrunError
from hpcrun.train.gradients import optimizer
from hpcrun.train.gradients.allreduce import AllReduce, call_blocking, call_polling
from hpcrun.train.gradients.codecs import CODECS, choose_allreduce
from hpcrun.train.gradients.half_precision import BFloat16AllReduce, Float16AllReduce
from hpcrun.train.gradients.hierarchical import HierarchicalAllReduce, has_equal_host_sizes
from hpcrun.train.gradients.overlap import group_gradients
from hpcrun.train.gradients.reducer import Reducer
from hpcrun.train.gradients.shared_memory import SharedMemoryAllReduce
from hpcrun.train.ranks.cuda_support import require_cuda_support
from hpcrun.train.ranks.world import world
from hpcrun.train.settings import is_overlap_enabled

hpcrun.train.init()
rank, size = hpcrun.train.rank(), hpcrun.train.size()
comm = world().comm
SHAPES = [(10, 7), (3,), (), (701,), (64,)]
CALLS = (call_blocking, call_polling)
SHARE = 1 / size
ROUNDING = [CODECS[name] for name in ("none", "fp16", "bf16")]
"""The codecs that keep each number, up to rounding."""


def assert_close(found, expected, tolerance=2e-6):
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=tolerance, atol=tolerance)


def rank_gradients(seed):
    draw = np.random.default_rng(seed)
    return [draw.normal(size=shape).astype("float32") for shape in SHAPES]


def expected_means():
    return [sum(each) * np.float32(SHARE) for each in zip(*(rank_gradients(r) for r in range(size)), strict=True)]


def to_bytes(arrays):
    return b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)


def same_everywhere(arrays):
    assert len(set(comm.allgather(to_bytes(arrays)))) == 1


def all_allreduces(call):
    for kind in ROUNDING:
        yield kind(comm, call)
    if size > 1:
        yield SharedMemoryAllReduce(comm)
    hosts = [r * 2 // size for r in range(size)]
    scattered = [r % 2 for r in range(size)]
    for layout in (hosts, scattered):
        if has_equal_host_sizes(layout):
            yield from (HierarchicalAllReduce(comm, layout, call, across) for across in ROUNDING)


def check_rounding_codecs():
    local = rank_gradients(rank)
    for call in CALLS:
        for each in all_allreduces(call):
            digits = {Float16AllReduce: 2**-10, BFloat16AllReduce: 2**-7}
            tolerance = digits.get(type(getattr(each, "across", each)), 1e-6)
            for chunk in (2**20, 1024, 64, 0):
                reducer = Reducer(comm, chunk, each)
                for _ in range(2):
                    found = reducer(local, SHARE)
                assert_close(found[0], expected_means()[0], tolerance)
                for total, expected in zip(found, expected_means(), strict=True):
                    assert_close(total, expected, tolerance)
                    assert total.shape == expected.shape
                same_everywhere(found)
                reducer.stop_requested = rank == size - 1
                reducer(local, SHARE)
                assert reducer.stop_agreed
                assert to_bytes(local) == to_bytes(rank_gradients(rank))
                reducer.end_epoch()


class Recording(AllReduce):
    """Records the chunks that it reduces."""

    def __init__(self, *args):
        super().__init__(*args)
        self.seen = []

    def reduce(self, chunk):
        self.seen.append(chunk)
        super().reduce(chunk)


def check_each_step_reduces_the_same_chunks():
    hosts = [r * 2 // size for r in range(size)]
    kinds: list[AllReduce] = [Recording(comm)]
    if has_equal_host_sizes(hosts):
        kinds += [HierarchicalAllReduce(comm, hosts, call_blocking, Recording)]
    for each in kinds:
        reducer, recorder = Reducer(comm, 1024, each), getattr(each, "across", each)
        assert isinstance(recorder, Recording)
        seen = recorder.seen
        for _ in range(3):
            reducer(rank_gradients(rank), SHARE)
        assert len(seen) == 3 * len(set(seen)) > 3, seen
        assert seen == 3 * seen[: len(set(seen))]


def check_reductions_are_reproducible():
    for each in all_allreduces(call_blocking):
        reducer, other = Reducer(comm, 1024, each), Reducer(comm, 1024, each)
        assert to_bytes(reducer(rank_gradients(rank), SHARE)) == to_bytes(other(rank_gradients(rank), SHARE))


def check_fast_ranks_wait_for_slow_ranks():
    reducer, local, expected = Reducer(comm, 1024), rank_gradients(rank), expected_means()  # 4 chunks
    for step in range(300):
        time.sleep(0.001 * ((step + rank) % size))  # so that another rank is the last one in each step
        for total, mean in zip(reducer([g * (step + 1) for g in local], SHARE), expected, strict=True):
            assert_close(total / (step + 1), mean, 1e-5)


def check_shares_are_not_rounded():
    shares = [0.001 + (r == 0) * (1 - 0.001 * size) for r in range(size)]
    for each in all_allreduces(call_blocking):
        Reducer(comm, None, each)(rank_gradients(rank), shares[rank])
        try:
            Reducer(comm, None, each)(rank_gradients(rank), 1.002 / size)
        except HpcrunError as error:
            assert "add up to 1.002 batches" in str(error)  # noqa: PT017
        else:
            raise AssertionError("not refused")


def check_halves_round_to_even():
    import ml_dtypes

    draw = np.random.default_rng(1)
    patterns = draw.integers(0, 2**32, 10**6, dtype=np.uint32)
    patterns[:6] = 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7F800000, 0xFF800000, 0x7F7FFFFF
    patterns[1000:50000] &= 0xFFFF8000  # ties
    values = patterns.view(np.float32)
    for kind, dtype in ((BFloat16AllReduce, ml_dtypes.bfloat16), (Float16AllReduce, np.float16)):
        halves, decoded = np.empty(values.size, np.uint16), np.empty_like(values)
        with np.errstate(all="ignore"):
            kind(comm)._convert(kind(comm)._encode, values, halves)
            kind(comm)._convert(kind(comm)._decode, halves, decoded)
            expected = values.astype(dtype).astype(np.float32)
        np.testing.assert_array_equal(decoded, expected)


def check_infinity_and_nan():
    for each in all_allreduces(call_blocking):
        for value in (np.inf, np.nan):
            local = [np.ones(1000, "float32")]
            local[0][7] = value if rank == size - 1 else 1
            (found,) = Reducer(comm, None, each)(local, SHARE)
            assert not np.isfinite(found[7])
            assert np.isfinite(np.delete(found, 7)).all()


def check_float64():
    local = [g.astype("float64") for g in rank_gradients(rank)]
    for each in all_allreduces(call_blocking):
        for total, expected in zip(Reducer(comm, None, each)(local, SHARE), expected_means(), strict=True):
            assert_close(total, expected, 1e-6)
            assert total.dtype == np.float64


def check_groups():
    local = rank_gradients(rank)
    for each in all_allreduces(call_polling):
        reducer, steps = Reducer(comm, 1024, each), 3
        for _ in range(steps):
            low = reducer(local[3:], SHARE, 0, is_last_group=False)
            high = reducer(local[:3], SHARE, 1)
        ungrouped = Reducer(comm, 1024, each)(local, SHARE)
        for total, expected in zip([*high, *low], ungrouped, strict=True):
            assert_close(total, expected, 0 if each.exact and size < 3 else 1e-2)
        assert reducer.steps == steps
        reducer.end_epoch()
    assert group_gradients([1, 2, 3, 4], 5) == [[3, 2], [1, 0]]
    assert group_gradients([9, 1, 1], 5) == [[2, 1, 0]]
    assert group_gradients([1, 9, 9], 5) == [[2], [1], [0]]


def check_numpy_function():
    if keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    from hpcrun.train import numpy_function

    assert numpy_function._registry(), "TensorFlow's internals have changed: its public function is slower"
    memory = np.zeros(64, np.float32)
    keepalive: list[object] = []

    def function(one, other):
        np.multiply(one, 2, out=memory[: one.size])
        return [memory[: one.size], other.T.copy(), np.zeros(())]

    @tf.function
    def step(one, other):
        return numpy_function.numpy_function(function, [one + 1, other], ["float32", "int64", "float64"], keepalive)

    for run in (step, step.python_function):  # in a graph, and eagerly
        for k in range(3):
            found = run(tf.fill([5], float(k)), tf.reshape(tf.range(6, dtype=tf.int64), [2, 3]))
            assert_close(found[0], np.full(5, 2 * k + 2))
            assert_close(found[1], np.arange(6).reshape(2, 3).T)
            assert found[2].shape == ()


def check_refusals():
    for name, value in {"HPCRUN_COMPRESS": "fp8", "HPCRUN_HIERARCHICAL": "yes", "HPCRUN_OVERLAP": "2"}.items():
        os.environ[name] = value
        try:
            choose_allreduce(comm, world().hosts)
            is_overlap_enabled()
        except HpcrunError as error:
            assert (f"{name}={value}" in str(error), bool(error.hint)) == (True, True)  # noqa: PT017
        else:
            raise AssertionError(f"not refused: {name}={value}")
        finally:
            del os.environ[name]
    assert not is_overlap_enabled()
    assert type(choose_allreduce(comm, world().hosts)) is AllReduce
    assert not has_equal_host_sizes([1, 1])
    assert not has_equal_host_sizes([1, 2])
    assert not has_equal_host_sizes([1, 1, 2])
    assert has_equal_host_sizes([1, 2, 1, 2])


def train(**variables):
    x, y = data(21)
    os.environ.update(variables)
    try:
        model = compiled(hpcrun.train.Model(network()), keras.optimizers.SGD(0.1, momentum=0.9))
        model.fit(x, y, batch_size=8, shuffle=False, epochs=2, verbose=0)
    finally:
        for name in variables:
            del os.environ[name]
    return model, weights(model)


def check_training():
    x, y = data(21)
    plain = compiled(network(), keras.optimizers.SGD(0.1, momentum=0.9))
    plain.fit(x, y, batch_size=8, shuffle=False, epochs=2, verbose=0)
    for name, tolerance in {"none": 2e-6, "bf16": 2e-2, "fp16": 2e-3}.items():
        _, found = train(HPCRUN_COMPRESS=name)
        assert_close(found, weights(plain), tolerance)
        same_everywhere([found])
    _, expected = train()
    with mock.patch.object(optimizer, "BUCKET_BYTES", 64):  # bytes: one group per gradient, as in a large model
        model, found = train(HPCRUN_OVERLAP="1")
        assert_close(found, expected, 0 if size < 3 else 2e-6)
        early = compiled(hpcrun.train.Model(network()), "sgd", steps_per_execution=2)
        early.fit(((x[8 * k : 8 * k + 8], y[8 * k : 8 * k + 8]) for k in range(3)), verbose=0)
    same_everywhere([weights(model), weights(early)])
    if size > 1:
        reducer = optimizer.get_reducer(model.optimizer)
        assert reducer is not None
        assert reducer.overlap
        assert len(reducer._buffers) > 1


def check_an_mpi_library_without_cuda_is_refused():
    assert_refused("this MPI library takes no GPU memory: MPICH 5", require_cuda_support)  # PyPI's wheel


def check_cuda_aware_tensors():
    if keras.backend.backend() != "torch":
        return
    x, y = data(21)
    plain = compiled(network(), keras.optimizers.SGD(0.1, momentum=0.9))
    plain.fit(x, y, batch_size=8, shuffle=False, epochs=2, verbose=0)
    model, found = train(HPCRUN_CUDA_AWARE="1")
    assert_close(found, weights(plain))
    same_everywhere([found])
    reducer = optimizer.get_reducer(model.optimizer)
    assert reducer is not None
    assert (reducer.on_device, reducer.steps) == (True, 6)
    reducer.stop_requested = rank == size - 1
    reducer.end_epoch()
    assert reducer.stop_agreed


failed = run_checks(__name__, sys.argv[1:])
print("RESULT", json.dumps(failed), flush=True)
sys.exit(len(failed))
