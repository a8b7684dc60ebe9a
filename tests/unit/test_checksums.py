"""Checksums by which ranks compare their data."""

import pickle

import numpy as np
import pytest

from hpcrun.train.data.checksums import Checksum, sample_indices

images = np.random.default_rng(1).uniform(size=(64, 28, 28, 3)).astype("float32")
names = np.array([b"cat", "dog \N{SNOWMAN}", None], object)


@pytest.mark.parametrize(
    "array",
    [images, images.astype("float16"), np.log(images), (images * 255).astype("uint8"), names, np.arange(3), np.eye(2)],
    ids=lambda array: array.dtype.name,
)
def test_another_order_changes_the_checksum(array):
    sent = pickle.loads(pickle.dumps(Checksum(array.copy())))
    assert Checksum(array) == sent
    swapped = array.copy()
    swapped[[0, 1]] = array[[1, 0]]
    assert Checksum(array) != Checksum(swapped)
    assert Checksum(array) != Checksum(array[:-1])


def test_checksums_tolerate_rounding():
    logs = np.log(images)
    assert Checksum(logs) == Checksum(np.nextafter(logs, np.float32(0)))
    assert Checksum(logs) != Checksum(logs.astype("float64"))
    logs[3, 4, 5] = np.nan, np.inf, -np.inf
    assert Checksum(logs) == Checksum(logs.copy())


def test_checksums_ignore_folders():
    names = ["cats/1.jpg", "dogs/2.jpg"]
    scratch_paths, local_paths = (
        np.array([f"{folder}/{name}" for name in names]) for folder in ("/scratch", "/local/rank1")
    )
    assert (
        Checksum(scratch_paths)
        == Checksum(local_paths)
        == Checksum(local_paths.astype("S"))
        == Checksum(local_paths.astype(object))
    )
    assert Checksum(scratch_paths) != Checksum(local_paths[::-1])


def test_empty_arrays_and_numbers():
    assert Checksum(np.zeros((0, 3))) == Checksum(np.zeros((0, 3)))
    assert Checksum(np.array(1.5)) == Checksum(np.array(1.5))
    assert Checksum(np.array(1.5)) != Checksum(np.array(2.5))


def test_sample_indices_cover_the_whole_range():
    assert sample_indices(3).tolist() == [0, 1, 2]
    assert (sample_indices(10**9)[[0, -1]] == [0, 10**9 - 1]).all()
    assert len(sample_indices(10**9)) == 64
