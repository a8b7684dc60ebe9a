"""Image files in `tf.data` pipelines."""

from __future__ import annotations

import tensorflow as tf


def read_jpegs(paths: tf.Tensor, size: int) -> tf.Tensor:
    """Read, resize and crop image files, for `dataset(..., load=...)`: a rank reads only its own samples.

    The shorter side becomes 8/7 of `size` (256 for 224) and the image is cropped to its centre, as in the evaluation of
    ResNet on ImageNet (He et al., arXiv:1512.03385).

    Args:
        paths: File names of JPEG or PNG images, shape (b,).
        size: Height and width in pixels.

    Returns:
        uint8, shape (b, size, size, 3).
    """

    def read(path: tf.Tensor) -> tf.Tensor:
        image = tf.io.decode_image(tf.io.read_file(path), channels=3, expand_animations=False)  # (h, w, 3)
        sides = tf.cast(tf.shape(image)[:2], tf.float32)
        sides = tf.cast(tf.round(sides * (size * 8 / 7) / tf.reduce_min(sides)), tf.int32)
        image = tf.image.resize_with_crop_or_pad(tf.image.resize(image, sides), size, size)
        return tf.cast(tf.round(image), tf.uint8)

    return tf.map_fn(read, paths, fn_output_signature=tf.TensorSpec((size, size, 3), tf.uint8))
