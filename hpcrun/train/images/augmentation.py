"""Random changes of images; the random numbers depend only on a seed for each image and epoch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.train.types import Data

    Array = np.ndarray[Any, Any]

_CROP_ATTEMPTS = 10  # number of random windows per image; the first one inside the image is used
_DRAWS_PER_IMAGE = 6  # number of random numbers per image for the distortion
_CENTRE_FRACTION = 7 / 8  # side of the central square, as a fraction of the image's shorter side: 224 of 256 pixels


class Augmentation(NamedTuple):
    """A way to change images at random.

    Args:
        distort: Function that changes images, uint8 (b, size, size, 3), given random numbers from 0 to 1, (b, 6).
        area: Minimum area of the random crop, as a fraction of the image's area; 0: crop the central square.
        uses_boxes: Whether the crop must contain a tenth of one of the image's bounding boxes.
    """

    distort: Callable[[Data, Data], Data] | None = None
    area: float = 0.0
    uses_boxes: bool = False

    def draw(self, shapes: Array, size: int, seeds: Array, boxes: Array) -> tuple[Array, Array]:
        """Return the window to crop from each image, and random numbers for `distort`.

        Args:
            shapes: Height and width of the images in pixels, (b, 2).
            size: Height and width of the results in pixels.
            seeds: Two seeds per image, int32, (b, 2).
            boxes: Bounding boxes y0, x0, y1, x1 as fractions of height and width, (b, k, 4); zeros: no box.

        Returns:
            The windows (top, left, height, width) in pixels, int32 (b, 4), and the random numbers, float32 (b, 6).
        """
        keys = seeds.astype(np.uint32).astype(np.uint64)
        generators = (np.random.Generator(np.random.Philox(key=key)) for key in keys)
        uniform_draws = np.stack(
            [stream.random(_DRAWS_PER_IMAGE + 4 * _CROP_ATTEMPTS * (self.area > 0)) for stream in generators]
        )
        if self.area:
            window_draws = uniform_draws[:, _DRAWS_PER_IMAGE:].reshape(-1, _CROP_ATTEMPTS, 4)
            windows = _random_windows(shapes, window_draws, self.area, boxes if self.uses_boxes else None)
        else:
            windows = central_windows(shapes, size)
        return windows.astype(np.int32), uniform_draws[:, :_DRAWS_PER_IMAGE].astype(np.float32)


def central_windows(shapes: Array, size: int) -> Array:
    """Return the central square of each image, with 7/8 of its shorter side; images of the target size are not cropped.

    The evaluation of ResNet on ImageNet uses this crop (He et al., arXiv:1512.03385).
    """
    sides = np.maximum(np.round(shapes.min(1) * _CENTRE_FRACTION), 1).astype(int)
    sides[(shapes == size).all(1)] = size
    return np.column_stack([(shapes - sides[:, None]) // 2, sides, sides])


def _random_windows(shapes: Array, draws: Array, min_area_fraction: float, boxes: Array | None) -> Array:
    """Return each image's first random window that is inside the image (GoogLeNet, arXiv:1409.4842, section 6)."""
    height, width = shapes.T[..., None].astype(float)  # (b, 1)
    crop_area = height * width * (min_area_fraction + (1 - min_area_fraction) * draws[..., 0])  # (b, attempts)
    ratio = np.exp(np.log(3 / 4) + np.log(16 / 9) * draws[..., 1])
    rows, columns = np.maximum(np.round(np.sqrt([crop_area / ratio, crop_area * ratio])), 1)
    top, left = np.floor(draws[..., 2] * (height - rows + 1)), np.floor(draws[..., 3] * (width - columns + 1))
    has_fit = (rows <= height) & (columns <= width)
    if boxes is not None:
        has_fit &= _cover_boxes(
            np.stack([top / height, left / width, (top + rows) / height, (left + columns) / width], -1), boxes
        )
    first_fit = has_fit.argmax(1)[:, None]
    window = [np.take_along_axis(coordinate, first_fit, 1)[:, 0] for coordinate in (top, left, rows, columns)]
    side = shapes.min(1)
    central_window = [*((shapes - side[:, None]) // 2).T, side, side]
    return np.where(has_fit.any(1), window, central_window).T


def _cover_boxes(windows: Array, boxes: Array) -> Array:
    """Return whether each window (b, attempts, 4) contains a tenth of a box, or of the image if it has no box."""
    is_padding = (boxes == 0).all(-1)  # (b, k)
    image_box = np.where(is_padding.all(1)[:, None], [0.0, 0.0, 1.0, 1.0], 0.0)[:, None]  # (b, 1, 4)
    boxes = np.concatenate([boxes, image_box], 1)[:, None]  # (b, 1, k, 4)
    top_left, bottom_right = (
        np.maximum(windows[:, :, None, :2], boxes[..., :2]),
        np.minimum(windows[:, :, None, 2:], boxes[..., 2:]),
    )
    overlap, box_area = np.maximum(bottom_right - top_left, 0).prod(-1), (boxes[..., 2:] - boxes[..., :2]).prod(-1)
    return np.any((overlap >= 0.1 * box_area) & (box_area > 0), -1)  # type: ignore[no-any-return]


def _flip(images: Data, uniform_draws: Data) -> Data:
    """Flip images horizontally if their first random number is below 0.5."""
    size = images.shape[1]
    # tf.reverse is 40 times faster with three axes than with four; gather is 5 times faster than tf.where (224 x 224).
    flipped_images = tf.reshape(tf.reverse(tf.reshape(images, [-1, size, 3]), [1]), [-1, size, size, 3])
    count = tf.shape(images)[0]
    indices = tf.range(count) + tf.where(uniform_draws[:, 0] < 0.5, count, 0)
    return tf.gather(tf.concat([images, flipped_images], 0), indices)


def _distort_colours(images: Data, uniform_draws: Data) -> Data:
    """Randomly flip images and change brightness, contrast, saturation and hue, as Inception's scripts do."""

    def adjust(image_and_draws: tuple[Data, Data]) -> Data:
        image, (_, order, brightness, contrast, saturation, hue) = (
            tf.cast(image_and_draws[0], tf.float32) / 255,
            tf.unstack(image_and_draws[1]),
        )
        change_contrast = partial(tf.image.adjust_contrast, contrast_factor=0.5 + contrast)
        image = tf.image.adjust_brightness(image, (2 * brightness - 1) * 32 / 255)
        image = tf.cond(order < 0.5, partial(change_contrast, image), lambda: image)
        image = tf.image.adjust_hue(tf.image.adjust_saturation(image, 0.5 + saturation), (2 * hue - 1) * 0.2)
        image = tf.cond(order < 0.5, lambda: image, partial(change_contrast, image))
        return tf.cast(tf.round(tf.clip_by_value(image, 0, 1) * 255), tf.uint8)

    spec = tf.TensorSpec(images.shape[1:], tf.uint8)
    return tf.map_fn(
        adjust, (_flip(images, uniform_draws), uniform_draws), fn_output_signature=spec, parallel_iterations=1
    )


def _shift_and_flip(images: Data, uniform_draws: Data) -> Data:
    """Randomly shift images by up to 1/8 of their size, filled with black, and flip them."""
    size = images.shape[1]
    padding = size // 8
    corners = tf.cast(tf.floor(uniform_draws[:, 1:3] * (2 * padding + 1)), tf.int32)  # (b, 2)
    corners = tf.minimum(corners, 2 * padding)  # numbers just below 1 are 1 as float32
    rows, columns = tf.unstack(corners[:, :, None] + tf.range(size), axis=1)  # (b, size)
    padded_images = tf.pad(images, [[0, 0], [padding, padding], [padding, padding], [0, 0]])
    shifted_images = tf.gather(tf.gather(padded_images, rows, axis=1, batch_dims=1), columns, axis=2, batch_dims=1)
    return _flip(shifted_images, uniform_draws)


AUGMENTATIONS = {
    "none": Augmentation(),
    "resnet": Augmentation(_flip, area=0.08),
    "inception": Augmentation(_distort_colours, area=0.05, uses_boxes=True),
    "cifar": Augmentation(_shift_and_flip),
}
"""``resnet``: random crops of 8 to 100 % of the area with aspect ratios of 3/4 to 4/3, and flips (Goyal et al.,
arXiv:1706.02677). ``inception``: random crops of 5 to 100 % of the area that contain a tenth of a bounding box (if the
record has boxes), flips and changes of colour (Inception's image_processing.py). ``cifar``: shifts by up to 4 of 32
pixels, and flips (He et al., arXiv:1512.03385)."""
