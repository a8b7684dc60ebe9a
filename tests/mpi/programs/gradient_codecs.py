"""Checks of the codecs that compress gradients by layer, on a few ranks; failures are printed."""

import itertools
import json
import os
import sys

import keras
import numpy as np
from cases import compiled, data, network, weights
from checks import run_checks

import hpcrun.train
from hpcrun import compression_options
from hpcrun.train.gradients.allreduce import call_blocking, call_polling
from hpcrun.train.gradients.codecs import CODECS
from hpcrun.train.gradients.layerwise import LayerwiseAllReduce
from hpcrun.train.gradients.packing import pack_numbers, unpack_numbers
from hpcrun.train.gradients.reducer import Reducer
from hpcrun.train.ranks.world import world

hpcrun.train.init()
rank, size, comm = hpcrun.train.rank(), hpcrun.train.size(), world().comm
SHAPES = [(60, 41), (41,), (3, 3, 20, 16), (), (30, 80), (80,)]
COMPRESSED = (0, 2, 4)
"""Layers that are large enough for both codecs."""
KINDS = ("ternary", "powersgd")
SHARE = 1 / size


def codec(name, call=call_blocking, **settings):
    variables = {f"HPCRUN_{key.upper()}": str(value) for key, value in {"min_size": 100, **settings}.items()}
    os.environ.update(variables)
    try:
        return CODECS[name](comm, call)
    finally:
        for variable in variables:
            del os.environ[variable]


def reducer(name, call=call_blocking, **settings):
    return Reducer(comm, None, codec(name, call, **settings))


def gradients(owner, step=0, dtype="float32"):
    draw = np.random.default_rng((owner, step))
    return [draw.normal(size=shape).astype(dtype) for shape in SHAPES]


def means(step=0, dtype="float32"):
    return [np.sum(each, 0) / size for each in zip(*(gradients(r, step, dtype) for r in range(size)), strict=True)]


def to_bytes(arrays):
    return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)


def assert_same_everywhere(arrays):
    assert len(set(comm.allgather(to_bytes(arrays)))) == 1


def assert_close(found, expected, tolerance=1e-5):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def check_the_command_line_has_all_codecs():
    assert tuple(CODECS) == compression_options.CODECS


def check_sums_have_the_same_bits_on_all_ranks():
    for name, call, step in itertools.product(KINDS, (call_blocking, call_polling), range(3)):
        given = gradients(rank, step)
        found = reducer(name, call)(given, SHARE)
        assert_same_everywhere(found)
        assert to_bytes(given) == to_bytes(gradients(rank, step))
        for number, (total, mean) in enumerate(zip(found, means(step), strict=True)):
            assert total.shape == mean.shape
            if number not in COMPRESSED or size == 1:
                assert_close(total, mean)
            else:
                assert np.abs(total - mean).max() > 0.01


def check_float64_is_not_rounded():
    for name in KINDS:
        found = reducer(name)(gradients(rank, dtype="float64"), SHARE)
        for total, mean in zip(found, means(dtype="float64"), strict=True):
            assert_close(total, mean, 1e-6)


def check_packed_numbers_are_those_given():
    draw = np.random.default_rng(0)
    for levels, count in itertools.product((5, 9, 17, 255, 2049), (1, 27, 28, 1000)):
        numbers = draw.integers(levels, size=count).astype("uint16")
        numbers[-1] = levels - 1
        words = pack_numbers(numbers, levels)
        np.testing.assert_array_equal(unpack_numbers(words, levels, count), numbers)
        assert words.nbytes * 8 <= count * 1.25 * np.log2(levels) + 64


def check_ternary_sums_are_unbiased():
    """The mean of many sums is that of the clipped gradients, within five standard deviations of a test statistic."""
    for clip_factor in (0, 1) if size > 1 else ():
        compare_mean_of_sums(clip_factor, steps=300)


def compare_mean_of_sums(clip_factor, steps):
    reduce = reducer("ternary", clip_factor=clip_factor)
    weighted = [[gradient * SHARE for gradient in gradients(r)] for r in range(size)]
    if clip_factor:
        weighted = [[np.clip(g, -clip_factor * g.std(), clip_factor * g.std()) for g in each] for each in weighted]
    totals = [np.zeros(shape) for shape in SHAPES]
    for _ in range(steps):
        for total, found in zip(totals, reduce(gradients(rank), SHARE), strict=True):
            np.add(total, found, out=total)
    for number in COMPRESSED:
        parts = np.array([each[number] for each in weighted], "float64")  # (ranks, ...)
        scale = np.abs(parts).max()
        variance = (scale * np.abs(parts) - parts**2).sum(0) / steps
        z = (totals[number] / steps - parts.sum(0)) / np.sqrt(variance)
        assert abs(z.mean()) < 5 / np.sqrt(z.size), (number, z.mean())
        assert abs((z**2).mean() - 1) < 5 * np.sqrt(2 / z.size), (number, (z**2).mean())


def check_variables_of_equal_shapes_keep_nothing_of_each_other():
    for name in KINDS:
        settings = {"HPCRUN_COMPRESS": name, "HPCRUN_MIN_SIZE": "8", "HPCRUN_ERROR_FEEDBACK": "1"}
        os.environ.update(settings)
        trained, other = (keras.Variable(np.zeros((60, 41), "float32")) for _ in range(2))
        optimizer = hpcrun.train.Optimizer(keras.optimizers.SGD(1.0))
        for variable in settings:
            del os.environ[variable]
        optimizer.build([trained, other])
        optimizer.apply([keras.ops.convert_to_tensor(gradients(rank)[0])], [trained])
        optimizer.apply([keras.ops.zeros((60, 41))], [other])
        assert np.abs(trained.numpy()).max() > 0.01
        assert np.abs(other.numpy()).max() == 0


def check_a_step_that_is_skipped_leaves_no_residuals():
    for name, steps in itertools.product(KINDS, (0, 1)):
        reduce = reducer(name, error_feedback=1, float_first=steps)
        matrix, vector = gradients(rank)[:2]
        reduce([matrix, np.full_like(vector, np.inf)], SHARE)
        for total in reduce([np.zeros_like(matrix), np.zeros_like(vector)], SHARE):
            assert np.abs(total).max() == 0


def check_settings_that_would_divide_layers():
    for name in KINDS if size > 1 else ():
        assert_refused_with({"HPCRUN_COMPRESS": name, "HPCRUN_HIERARCHICAL": "1"}, "compresses whole layers")
        assert_refused_with({"HPCRUN_COMPRESS": name, "HPCRUN_FLOAT_LAST_LAYER": "1"}, "the last one", overlap=True)
        os.environ["HPCRUN_FUSION_THRESHOLD_KB"] = "1"
        assert reducer(name).chunk_bytes == LayerwiseAllReduce.chunk_bytes
        del os.environ["HPCRUN_FUSION_THRESHOLD_KB"]


def assert_refused_with(settings, message, **arguments):
    os.environ.update(settings)
    try:
        Reducer(comm, **arguments)
    except hpcrun.train.HpcrunError as error:
        assert message in str(error)  # noqa: PT017
    else:
        raise AssertionError(f"not refused: {settings}")
    finally:
        for variable in settings:
            del os.environ[variable]


def check_ternary_keeps_numbers_that_are_all_alike():
    for shapes in ([(1,), (60, 41)], [(1, 1)]):
        reduce = reducer("ternary", min_size=1)
        for total in reduce([np.full(shape, 0.5, "float32") for shape in shapes], SHARE):
            assert_close(total, np.full_like(total, 0.5))


def check_powersgd_of_any_magnitude_also_after_zeros():
    """Sums of few products of vectors are exact; those of the first rows are 0, as for the border of images."""
    for magnitude in (1e-30, 1.0, 1e18):
        reduce = reducer("powersgd")
        draws = [np.random.default_rng(r) for r in range(size)]
        matrices = [np.outer(draw.normal(size=60), draw.normal(size=41)).astype("float32") for draw in draws]
        for matrix in matrices:
            matrix[:10] = 0
        reduce([np.zeros((60, 41), "float32")], SHARE)
        for _ in range(3):
            (found,) = reduce([matrices[rank] * np.float32(magnitude)], SHARE)
            assert_close(found / np.float32(magnitude), np.sum(matrices, 0) / size, 1e-4)


def check_ternary_sums_of_layers_in_several_messages():
    """Numbers of one magnitude are rounded to themselves, so each sum is exact."""
    shapes = [(700, 3001), (130,), (30, 17), (2**20 + 1,), (2, 2)]
    draw = np.random.default_rng(0)
    signs = [[draw.choice([-1, 1], size=shape).astype("float32") for shape in shapes] for _ in range(size)]
    for call, feedback in ((call_blocking, 0), (call_polling, 0), (call_blocking, 1)):
        reduce = reducer("ternary", call, clip_factor=0, error_feedback=feedback)
        for step in (1, 2):
            found = reduce([sign * step for sign in signs[rank]], SHARE)
            for total, *expected in zip(found, *signs, strict=True):
                assert_close(total, np.sum(expected, 0) * step * SHARE)


def check_ternary_sums_of_ranks_without_samples():
    if size == 1:
        return
    shares = np.arange(size) / np.arange(size).sum()  # rank 0 has no sample
    given = [np.full(shape, np.float32(rank + 1)) for shape in SHAPES]
    expected = float(np.sum(shares * (np.arange(size) + 1)))
    largest = float(np.max(shares * (np.arange(size) + 1)))
    found = reducer("ternary", clip_factor=0)(given, shares[rank])
    for number, total in enumerate(found):
        if number in COMPRESSED:
            quotients = total / largest
            assert_close(quotients, np.round(quotients), 1e-3)
            assert quotients.min() >= 1
            assert quotients.max() <= size - 1
        else:
            assert_close(total, np.full_like(total, expected))


def check_ternary_scales_are_clipped():
    if size == 1:
        return
    found = reducer("ternary", clip_factor=1.5)(gradients(rank), SHARE)
    for number in COMPRESSED:
        limits = [1.5 * (each[number] * SHARE).std() for each in map(gradients, range(size))]
        quotients = found[number] / max(limits)
        assert_close(quotients, np.round(quotients), 1e-3)
        assert np.abs(quotients).max() > 1.9


def check_ternary_draws_are_reproducible():
    first, again, other = (to_bytes(reducer("ternary", compression_seed=s)(gradients(rank), SHARE)) for s in (1, 1, 2))
    assert first == again
    assert (first == other) == (size == 1)
    if size > 1:  # ranks with equal gradients draw other numbers
        (total, *_), (gradient, *_) = reducer("ternary")(gradients(0), SHARE), gradients(0)
        steps = np.abs(total / (np.abs(gradient).max() * SHARE))
        assert len(np.unique(np.round(steps, 2))) > 2


def check_feedback_loses_nothing():
    for name in KINDS if size > 1 else ():
        reduce = reducer(name, error_feedback=1)
        sent = [np.zeros(shape) for shape in SHAPES]
        for step in range(6):
            for total, found in zip(sent, reduce(gradients(rank, step), SHARE), strict=True):
                np.add(total, found, out=total)
        (layout,) = reduce.allreduce._layouts.values()
        for number, residual in zip(COMPRESSED, layout.residuals, strict=True):
            unsent = comm.allreduce(residual.astype("float64"))
            assert np.abs(unsent).max() > 0.01
            assert_close(sent[number] + unsent, sum(means(step)[number] for step in range(6)), 1e-4)


def check_powersgd_sends_matrices_of_low_rank():
    draw = np.random.default_rng(3)
    left, right = draw.normal(size=(60, 2)), draw.normal(size=(2, 41))
    reduce = reducer("powersgd", powersgd_rank=2)
    for _ in range(2):
        (total,) = reduce([np.float32(left @ right)], SHARE)
        assert_close(total, left @ right, 1e-4)


def check_numbers_that_are_not_finite_are_reported_and_not_kept():
    for name, value in itertools.product(KINDS, (np.nan, np.inf)):
        reduce = reducer(name, error_feedback=1)
        given = gradients(rank)
        reduce(given, SHARE)
        if rank == size - 1:
            given[2] = given[2] * 1
            given[2][0, 0, 0, 0] = value
        found = [total.copy() for total in reduce(given, SHARE)]
        assert_same_everywhere(found)
        assert not np.isfinite(found[2]).all()
        assert np.isfinite(found[0]).all()
        assert np.isfinite(found[4]).all()
        assert all(np.isfinite(total).all() for total in reduce(gradients(rank, 1), SHARE))


def check_some_layers_and_steps_are_unrounded():
    for name in KINDS:
        reduce = reducer(name, float_every=3, float_last_layer=1, error_feedback=0)
        for step in range(1, 7):
            found = reduce(gradients(rank), SHARE)
            assert_close(found[4], means()[4])
            is_exact = np.allclose(found[0], means()[0], atol=1e-5)
            assert is_exact == (step % 3 == 0 or size == 1), (name, step)


def check_the_first_steps_are_unrounded():
    for name in KINDS:
        whole, cut = (reducer(name, float_first=3, error_feedback=1) for _ in range(2))
        for step in range(1, 6):
            found = whole(gradients(rank), SHARE)
            assert np.allclose(found[0], means()[0], atol=1e-5) == (step <= 3 or size == 1), (name, step)
            if step == 2:
                cut.allreduce.restore(comm.allgather(whole.allreduce.state()))
        for step in range(3, 6):  # a resumed training goes on counting
            found = cut(gradients(rank), SHARE)
            assert np.allclose(found[0], means()[0], atol=1e-5) == (step == 3 or size == 1), (name, step)


def check_a_restored_codec_goes_on_with_the_same_bits():
    for name, steps_before in itertools.product(KINDS, (0, 2)):
        whole, cut = reducer(name, error_feedback=1), reducer(name, error_feedback=1)
        for step in range(3):
            whole(gradients(rank, step), SHARE)
        for step in range(steps_before):  # as of an earlier `fit`
            cut(gradients(rank, step), SHARE)
        states = comm.allgather(whole.allreduce.state())
        cut.allreduce.restore(states)
        for step in range(3, 5):
            assert to_bytes(cut(gradients(rank, step), SHARE)) == to_bytes(whole(gradients(rank, step), SHARE))
        for other in (states * 2, states[:1]):  # twice as many ranks, and one
            if len(other) == size:
                continue
            merged = codec(name, error_feedback=1)
            merged.restore(other)
            changed = Reducer(comm, None, merged)
            changed(gradients(rank, 3), SHARE)
            assert isinstance(merged, LayerwiseAllReduce)
            assert all(layout.steps == 4 for layout in merged._layouts.values())


def check_a_restored_codec_knows_its_layers():
    """After a restart, the steps of other layers may be skipped, as those of a first `fit` that was complete."""
    for name in KINDS:
        whole, cut = reducer(name, error_feedback=1), reducer(name, error_feedback=1)
        whole(gradients(rank)[:3], SHARE)
        whole(gradients(rank), SHARE)
        cut.allreduce.restore(comm.allgather(whole.allreduce.state()))
        found, expected = (to_bytes(reduce(gradients(rank, 1), SHARE)) for reduce in (cut, whole))
        assert found == expected, name


def check_sent_bytes_are_counted():
    """Each codec counts what it sends: float32 8 bytes for two numbers of an allreduce between two ranks, and so on."""
    numbers = 1_000_000
    for name in CODECS:
        reduce = reducer(name)
        before = reduce.allreduce.sent_bytes
        reduce([np.random.default_rng(rank).normal(size=(1000, 1000)).astype("float32")], SHARE)
        bits = 8 * (reduce.allreduce.sent_bytes - before) / numbers
        if size == 1:
            assert bits == 0
        elif name == "ternary":
            assert 2 * (size - 1) / size < bits < (2.1 if size == 2 else 2 + np.log2(2 * size + 1)), bits
        elif name == "powersgd":
            assert bits < 1
        else:
            expected = 2 * (size - 1) / size * {"none": 32, "fp16": 16, "bf16": 16}[name]
            assert abs(bits - expected) < 0.01, (name, bits)


def check_training():
    x, y = data(64)
    for name in KINDS:
        os.environ.update({"HPCRUN_COMPRESS": name, "HPCRUN_MIN_SIZE": "8", "HPCRUN_POWERSGD_RANK": "1"})
        try:
            keras.utils.set_random_seed(2)
            model = compiled(hpcrun.train.Model(network()), keras.optimizers.SGD(0.05, momentum=0.9))
            losses = model.fit(x, y, batch_size=16, shuffle=False, epochs=12, verbose=0).history["loss"]
        finally:
            for variable in ("HPCRUN_COMPRESS", "HPCRUN_MIN_SIZE", "HPCRUN_POWERSGD_RANK"):
                del os.environ[variable]
        assert losses[-1] < 0.9 * losses[0], (name, losses)
        assert_same_everywhere(weights(model) if isinstance(weights(model), list) else [weights(model)])


print("RESULT", json.dumps(run_checks(__name__, sys.argv[1:])), flush=True)
