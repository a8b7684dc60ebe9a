"""Ternary codes: the compiled functions and those of NumPy give the same bits, and right ones."""

import numpy as np
import pytest

from hpcrun.train.gradients import ternary_codes
from hpcrun.train.gradients.ternary_codes import CompiledCodes, NumpyCodes, load_codes, packed_size

SIZES = [1, 15, 16, 255, 256, 257, 1000, 70_000]
NUMPY = NumpyCodes()


def normal(size, seed=0):
    return np.random.default_rng(seed).standard_normal(size, dtype=np.float32)


def encode(codes, values, keys=(2**32 - 5, 77), first=2**32 - 100, limit=2.0, scale=2.5):
    packed = np.full(packed_size(values.size), 255, np.uint8)
    codes.encode(values, first, keys, limit, scale, packed)
    return packed


@pytest.fixture(scope="module")
def compiled():
    codes = load_codes()
    if not isinstance(codes, CompiledCodes):
        pytest.skip("no C compiler")
    return codes


@pytest.mark.parametrize("size", SIZES)
def test_compiled_functions_give_the_bits_of_numpy(compiled, size):
    values = normal(size)
    assert compiled.statistics(values) == NUMPY.statistics(values)
    packed = encode(NUMPY, values)
    np.testing.assert_array_equal(encode(compiled, values), packed)
    rows = np.stack([packed, encode(NUMPY, values, (1, 2)), np.zeros_like(packed)])
    np.testing.assert_array_equal(compiled.count(rows), NUMPY.count(rows))
    sums = np.empty((2, size), np.float32)
    compiled.decode(rows, 0.3, sums[0])
    NUMPY.decode(rows, 0.3, sums[1])
    assert sums[0].tobytes() == sums[1].tobytes()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("base", [5, 7, 17, 65, 1025, 2049])
def test_compiled_packing_gives_the_bits_of_numpy(compiled, size, base):
    numbers = np.random.default_rng(size).integers(base, size=size).astype(np.uint16)
    numbers[-1] = base - 1
    words = NUMPY.pack(numbers, base)
    np.testing.assert_array_equal(compiled.pack(numbers, base), words)
    for codes in (NUMPY, compiled):
        np.testing.assert_array_equal(codes.unpack(words, base, size), numbers)
    largest = np.full_like(words, 2**64 - 1)  # the reciprocal is least exact
    np.testing.assert_array_equal(compiled.unpack(largest, base, size), NUMPY.unpack(largest, base, size))


@pytest.mark.parametrize("size", SIZES)
def test_statistics_are_those_of_the_values(size):
    values = normal(size) + np.float32(0.5)
    assert NUMPY.statistics(values) == pytest.approx((np.abs(values).max(), values.mean(), values.std()), abs=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_noticed(compiled, value):
    values = normal(300)
    values[7] = value
    for codes in (NUMPY, compiled):
        assert not np.isfinite(codes.statistics(values)[0])


def test_codes_stand_for_signs_and_padding_for_zero():
    values = np.array([3, -3, 0, 3, -3], np.float32)
    packed = encode(NUMPY, values, limit=3, scale=3)
    assert NUMPY.count(packed[np.newaxis]).tolist() == [1, -1, 0, 1, -1] + [0] * 251
    many = np.stack([packed] * 300)
    assert NUMPY.count(many)[:5].tolist() == [300, -300, 0, 300, -300]


def test_random_numbers_of_ranks_and_places_are_independent():
    """Means of the rounded numbers, and correlations between keys and places, within five standard deviations."""
    values = np.full(100_000, 0.3, np.float32)
    draws = [NUMPY.count(encode(NUMPY, values, keys, 0, 1, 1)[np.newaxis])[: values.size] for keys in
             ((1, 1), (2, 1), (1, 2), (2**31, 5))]  # fmt: skip
    deviation = (0.3 * 0.7 / values.size) ** 0.5
    assert all(abs(each.mean() - 0.3) < 5 * deviation for each in draws)
    pairs = [(first, second) for number, first in enumerate(draws) for second in draws[:number]]
    pairs += [(each[:-lag], each[lag:]) for each in draws for lag in (1, 2, 64, 256)]
    assert all(abs(np.corrcoef(first, second)[0, 1]) < 5 / values.size**0.5 for first, second in pairs)


def test_without_a_compiler_numpy_is_used(monkeypatch):
    monkeypatch.setattr(ternary_codes, "load_codes", load_codes.__wrapped__)
    for compiler in ("no-such-compiler", "false", "true"):  # true: makes no library
        monkeypatch.setenv("CC", compiler)
        assert type(ternary_codes.load_codes()) is NumpyCodes
