"""Random changes of images, for the random numbers at the ends of their range."""

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from hpcrun.train.images.augmentation import _shift_and_flip


def test_shifts_stay_inside_for_numbers_that_float32_rounds_to_1():
    image = np.random.default_rng(0).integers(256, size=(1, 32, 32, 3), dtype=np.uint8)
    largest_shift = np.zeros((1, 32, 32, 3), np.uint8)
    largest_shift[:, :28, :28] = image[:, 4:, 4:]
    for draw in (np.float32(1 - 2**-30), np.nextafter(np.float32(1), np.float32(0)), np.float32(0.99)):
        found = _shift_and_flip(tf.constant(image), tf.constant([[0.9, draw, draw]], tf.float32))
        np.testing.assert_array_equal(found, largest_shift)
