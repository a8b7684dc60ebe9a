"""Decoding of batches of images in TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

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
_BOXES = {f"image/object/bbox/{edge}": tf.io.RaggedFeature(tf.float32) for edge in ("ymin", "xmin", "ymax", "xmax")}
_JPEG = b"\xff\xd8\xff"


@dataclass(frozen=True)
class Decoder:
    """Decodes batches of images; crops, resizes and changes them.

    Attributes:
        size: Height and width in pixels.
        augmentation: How the images are changed.
    """

    size: int
    augmentation: Augmentation

    def decode_records(self, records: Data, seeds: Data) -> Data:
        """Decode records.

        Args:
            records: Serialized ``tf.train.Example`` messages, shape (b,).
            seeds: int32, shape (b, 2).

        Returns:
            uint8, shape (b, size, size, 3).
        """
        uses_boxes = self.augmentation.uses_boxes
        features = tf.io.parse_example(records, _FEATURES | (_BOXES if uses_boxes else {}))
        encoded, is_raw = features["image/encoded"], features["image/format"] == "RAW"
        shapes = tf.stack([features[f"image/{axis}"] for axis in ("height", "width", "channels")], 1)  # (b, 3)
        boxes = tf.stack([features[edge].to_tensor() for edge in _BOXES], 2) if uses_boxes else _no_boxes(records)

        def decode_one(one: tuple[Data, ...]) -> Data:
            raw, pixels = one[3], partial(_decode_raw, one[0], one[4])
            return tf.cond(raw, lambda: self._crop_one(pixels(), one), lambda: self._decode_one(one))

        def decode_raw() -> Data:
            pixels = _decode_raw(encoded, tf.concat([[-1], shapes[0]], 0))
            windows, numbers = self._draw(shapes[:, :2], seeds, boxes)
            same = tf.reduce_all(windows == [0, 0, self.size, self.size]) & tf.reduce_all(shapes[0, :2] == self.size)
            crop = partial(self._map, lambda one: self._resize(_cut(*one)), pixels, windows)
            return self._distort(tf.cond(same, lambda: pixels, crop), numbers)

        return tf.cond(
            tf.reduce_all(is_raw) & tf.reduce_all(shapes == shapes[0]),
            decode_raw,
            lambda: self._decode(encoded, seeds, boxes, decode_one, is_raw, shapes),
        )

    def decode_files(self, contents: Data, seeds: Data) -> Data:
        """Decode JPEG, PNG, BMP or GIF files.

        Args:
            contents: Shape (b,).
            seeds: int32, shape (b, 2).

        Returns:
            uint8, shape (b, size, size, 3).
        """
        return self._decode(contents, seeds, _no_boxes(contents), self._decode_one)

    def _decode(
        self, contents: Data, seeds: Data, boxes: Data, decode_one: Callable[[tuple[Data, ...]], Data], *more: Data
    ) -> Data:
        """Decode image files: of a JPEG file, only the part that is kept."""
        all_jpeg = tf.reduce_all(tf.strings.substr(contents, 0, len(_JPEG)) == _JPEG)
        return tf.cond(
            all_jpeg,
            lambda: self._decode_jpegs(contents, seeds, boxes),
            lambda: self._map(decode_one, contents, seeds, boxes, *more),
        )

    def _decode_jpegs(self, contents: Data, seeds: Data, boxes: Data) -> Data:
        windows, numbers = self._draw(tf.numpy_function(_jpeg_shapes, [contents], tf.int64), seeds, boxes)

        def decode(one: tuple[Data, Data]) -> Data:
            return self._resize(tf.io.decode_and_crop_jpeg(one[0], one[1], channels=3))

        return self._distort(self._map(decode, contents, windows), numbers)

    def _decode_one(self, one: tuple[Data, ...]) -> Data:
        # A JPEG file gets the same pixels as in `_decode_jpegs`: they differ a little if all of it is decoded.
        return tf.cond(
            tf.io.is_jpeg(one[0]),
            lambda: self._decode_jpegs(*(part[tf.newaxis] for part in one[:3]))[0],
            lambda: self._crop_one(tf.io.decode_image(one[0], channels=3, expand_animations=False), one),
        )

    def _crop_one(self, pixels: Data, one: tuple[Data, ...]) -> Data:
        seeds, boxes = one[1][tf.newaxis], one[2][tf.newaxis]
        windows, numbers = self._draw(tf.shape(pixels)[tf.newaxis, :2], seeds, boxes)
        return self._distort(self._resize(_cut(pixels, windows[0]))[tf.newaxis], numbers)[0]

    def _draw(self, shapes: Data, seeds: Data, boxes: Data) -> tuple[Data, Data]:
        """Return the windows (b, 4) of images, and random numbers (b, 6)."""
        windows, numbers = tf.numpy_function(
            lambda shapes, seeds, boxes: self.augmentation.draw(shapes, self.size, seeds, boxes),
            [shapes, seeds, boxes],
            [tf.int32, tf.float32],
        )
        return tf.ensure_shape(windows, [None, 4]), tf.ensure_shape(numbers, [None, 6])

    def _map(self, function: Callable[[Data], Data], *elements: Data) -> Data:
        # one image after the other: `dataset` decodes several batches at a time
        spec = tf.TensorSpec((self.size, self.size, 3), tf.uint8)
        return tf.map_fn(function, elements, fn_output_signature=spec, parallel_iterations=1)

    def _resize(self, pixels: Data) -> Data:
        pixels = tf.cast(pixels, tf.float32)  # of bytes, the resize takes twice as long
        return tf.cast(tf.round(tf.image.resize(pixels, [self.size, self.size])), tf.uint8)

    def _distort(self, images: Data, numbers: Data) -> Data:
        images = tf.ensure_shape(images, [None, self.size, self.size, 3])
        return self.augmentation.distort(images, numbers) if self.augmentation.distort else images


def _jpeg_shapes(contents: Array) -> Array:
    """Return height and width of JPEG files, (b, 2); one by one, TensorFlow takes a tenth of the time of decoding."""
    return np.array([_jpeg_shape(content) for content in contents], np.int64)


def _jpeg_shape(content: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 <= len(content):  # a segment is 255, its type, its length in two bytes, ... (ITU-T T.81, annex B)
        kind = content[at + 1]
        if 0xC0 <= kind <= 0xCF and kind not in {0xC4, 0xC8, 0xCC}:  # the start of a frame
            return int.from_bytes(content[at + 5 : at + 7]), int.from_bytes(content[at + 7 : at + 9])
        at += 1 if kind == 0xFF else 2 + int.from_bytes(content[at + 2 : at + 4])
    return 1, 1  # the decoder will say what is wrong


def _cut(pixels: Data, window: Data) -> Data:
    top, left, height, width = tf.unstack(window)
    return pixels[top : top + height, left : left + width]


def _no_boxes(images: Data) -> Data:
    return tf.zeros([tf.size(images), 0, 4])


def _decode_raw(content: Data, shape: Data) -> Data:
    pixels = tf.reshape(tf.io.decode_raw(content, tf.uint8), shape)
    return tf.broadcast_to(pixels, tf.concat([tf.shape(pixels)[:-1], [3]], 0))  # grey values three times
