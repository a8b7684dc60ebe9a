"""Decoding of batches of images with TensorFlow."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.train.images.augmentation import Augmentation
    from hpcrun.train.types import Data

    Array = np.ndarray[Any, Any]

_FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/format": tf.io.FixedLenFeature([], tf.string, ""),
    "image/height": tf.io.FixedLenFeature([], tf.int64, 0),
    "image/width": tf.io.FixedLenFeature([], tf.int64, 0),
    "image/channels": tf.io.FixedLenFeature([], tf.int64, 3),
}
_BOX_FEATURES = {
    f"image/object/bbox/{edge}": tf.io.RaggedFeature(tf.float32) for edge in ("ymin", "xmin", "ymax", "xmax")
}
_JPEG_MAGIC = b"\xff\xd8\xff"


@frozen
class Decoder:
    """Decoder that also crops, resizes and augments batches of images.

    Attributes:
        size: Height and width of the results in pixels.
        augmentation: Random changes of the images.
    """

    size: int
    augmentation: Augmentation

    def decode_records(self, records: Data, seeds: Data) -> Data:
        """Decode the images of records.

        Args:
            records: Serialized ``tf.train.Example`` messages, shape (b,).
            seeds: Two seeds per image, int32, shape (b, 2).

        Returns:
            The images, uint8, shape (b, size, size, 3).
        """
        uses_boxes = self.augmentation.uses_boxes
        features = tf.io.parse_example(records, _FEATURES | (_BOX_FEATURES if uses_boxes else {}))
        encoded, is_raw = features["image/encoded"], features["image/format"] == "RAW"
        shapes = tf.stack([features[f"image/{axis}"] for axis in ("height", "width", "channels")], 1)  # (b, 3)
        boxes = (
            tf.stack([features[edge].to_tensor() for edge in _BOX_FEATURES], 2)
            if uses_boxes
            else _missing_boxes(records)
        )

        def decode_one(element: tuple[Data, ...]) -> Data:
            raw, pixels = element[3], partial(_decode_raw, element[0], element[4])
            return tf.cond(raw, lambda: self._crop_one(pixels(), element), lambda: self._decode_one(element))

        def decode_raw() -> Data:
            pixels = _decode_raw(encoded, tf.concat([[-1], shapes[0]], 0))
            windows, uniform_draws = self._choose_windows(shapes[:, :2], seeds, boxes)
            has_final_size = tf.reduce_all(windows == [0, 0, self.size, self.size]) & tf.reduce_all(
                shapes[0, :2] == self.size
            )
            crop = partial(self._map, lambda element: self._resize(_slice_window(*element)), pixels, windows)
            return self._distort(tf.cond(has_final_size, lambda: pixels, crop), uniform_draws)

        return tf.cond(
            tf.reduce_all(is_raw) & tf.reduce_all(shapes == shapes[0]),
            decode_raw,
            lambda: self._decode(encoded, seeds, boxes, decode_one, is_raw, shapes),
        )

    def decode_files(self, contents: Data, seeds: Data) -> Data:
        """Decode JPEG, PNG, BMP or GIF files.

        Args:
            contents: Contents of the files, shape (b,).
            seeds: Two seeds per image, int32, shape (b, 2).

        Returns:
            The images, uint8, shape (b, size, size, 3).
        """
        return self._decode(contents, seeds, _missing_boxes(contents), self._decode_one)

    def _decode(
        self,
        contents: Data,
        seeds: Data,
        boxes: Data,
        decode_one: Callable[[tuple[Data, ...]], Data],
        *raw_features: Data,
    ) -> Data:
        """Decode image files; for JPEG files, decode only the window that is needed."""
        all_jpeg = tf.reduce_all(tf.strings.substr(contents, 0, len(_JPEG_MAGIC)) == _JPEG_MAGIC)
        return tf.cond(
            all_jpeg,
            lambda: self._decode_jpegs(contents, seeds, boxes),
            lambda: self._map(decode_one, contents, seeds, boxes, *raw_features),
        )

    def _decode_jpegs(self, contents: Data, seeds: Data, boxes: Data) -> Data:
        windows, uniform_draws = self._choose_windows(
            tf.numpy_function(_jpeg_shapes, [contents], tf.int64), seeds, boxes
        )

        def decode(element: tuple[Data, Data]) -> Data:
            return self._resize(tf.io.decode_and_crop_jpeg(element[0], element[1], channels=3))

        return self._distort(self._map(decode, contents, windows), uniform_draws)

    def _decode_one(self, element: tuple[Data, ...]) -> Data:
        # JPEG files are decoded as in `_decode_jpegs`, because decoding whole files gives slightly different pixels.
        return tf.cond(
            tf.io.is_jpeg(element[0]),
            lambda: self._decode_jpegs(*(part[tf.newaxis] for part in element[:3]))[0],
            lambda: self._crop_one(tf.io.decode_image(element[0], channels=3, expand_animations=False), element),
        )

    def _crop_one(self, pixels: Data, element: tuple[Data, ...]) -> Data:
        seeds, boxes = element[1][tf.newaxis], element[2][tf.newaxis]
        windows, uniform_draws = self._choose_windows(tf.shape(pixels)[tf.newaxis, :2], seeds, boxes)
        return self._distort(self._resize(_slice_window(pixels, windows[0]))[tf.newaxis], uniform_draws)[0]

    def _choose_windows(self, shapes: Data, seeds: Data, boxes: Data) -> tuple[Data, Data]:
        """Return the windows to crop, (b, 4), and random numbers for the distortion, (b, 6)."""
        windows, uniform_draws = tf.numpy_function(
            lambda shapes, seeds, boxes: self.augmentation.draw(shapes, self.size, seeds, boxes),
            [shapes, seeds, boxes],
            [tf.int32, tf.float32],
        )
        return tf.ensure_shape(windows, [None, 4]), tf.ensure_shape(uniform_draws, [None, 6])

    def _map(self, function: Callable[[Data], Data], *elements: Data) -> Data:
        # parallel_iterations=1, because `dataset` decodes several batches at a time
        spec = tf.TensorSpec((self.size, self.size, 3), tf.uint8)
        return tf.map_fn(function, elements, fn_output_signature=spec, parallel_iterations=1)

    def _resize(self, pixels: Data) -> Data:
        pixels = tf.cast(pixels, tf.float32)  # tf.image.resize takes twice as long for uint8
        return tf.cast(tf.round(tf.image.resize(pixels, [self.size, self.size])), tf.uint8)

    def _distort(self, images: Data, uniform_draws: Data) -> Data:
        images = tf.ensure_shape(images, [None, self.size, self.size, 3])
        return self.augmentation.distort(images, uniform_draws) if self.augmentation.distort else images


def _jpeg_shapes(contents: Array) -> Array:
    """Return height and width of JPEG files, (b, 2), much faster than `tf.io.extract_jpeg_shape`."""
    return np.array([_jpeg_shape(content) for content in contents], np.int64)


def _jpeg_shape(content: bytes) -> tuple[int, int]:
    position = 2
    while position + 9 <= len(content):  # a segment is 255, type, length in two bytes, data (ITU-T T.81, annex B)
        segment_type = content[position + 1]
        if 0xC0 <= segment_type <= 0xCF and segment_type not in {0xC4, 0xC8, 0xCC}:  # the segment starts a frame
            return int.from_bytes(content[position + 5 : position + 7]), int.from_bytes(
                content[position + 7 : position + 9]
            )
        position += 1 if segment_type == 0xFF else 2 + int.from_bytes(content[position + 2 : position + 4])
    return 1, 1  # the decoder will raise an error for this file


def _slice_window(pixels: Data, window: Data) -> Data:
    top, left, height, width = tf.unstack(window)
    return pixels[top : top + height, left : left + width]


def _missing_boxes(images: Data) -> Data:
    return tf.zeros([tf.size(images), 0, 4])


def _decode_raw(content: Data, shape: Data) -> Data:
    pixels = tf.reshape(tf.io.decode_raw(content, tf.uint8), shape)
    return tf.broadcast_to(pixels, tf.concat([tf.shape(pixels)[:-1], [3]], 0))  # repeats grey values in all channels
