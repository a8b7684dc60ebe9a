"""The networks and their training data, equal for all strategies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    import argparse


def build(name: str, shape: tuple[int, ...], classes: int) -> keras.Model:
    """Return a network for images of 0 to 255: (batch, height, width, channels) -> (batch, classes).

    Args:
        name: ``lenet5`` or ``resnet50``.
        shape: The shape of an image.
        classes: The number of classes.
    """
    layers = keras.layers
    if name == "resnet50":
        resnet = keras.applications.ResNet50(weights=None, input_shape=shape, classes=classes)
        return keras.Sequential([keras.Input(shape), layers.Rescaling(1 / 127.5, offset=-1), resnet])
    return keras.Sequential(
        [
            keras.Input(shape),
            layers.Rescaling(1 / 255),  # (batch, 28, 28, 1), 0 to 1
            layers.ZeroPadding2D(2),  # (batch, 32, 32, 1)
            layers.Conv2D(6, 5, activation="relu"),  # (batch, 28, 28, 6)
            layers.MaxPooling2D(),  # (batch, 14, 14, 6)
            layers.Conv2D(16, 5, activation="relu"),  # (batch, 10, 10, 16)
            layers.MaxPooling2D(),  # (batch, 5, 5, 16)
            layers.Flatten(),  # (batch, 400)
            layers.Dense(120, activation="relu"),  # (batch, 120)
            layers.Dense(84, activation="relu"),  # (batch, 84)
            layers.Dense(classes, activation="softmax"),  # (batch, classes)
        ]
    )


@dataclass(frozen=True)
class Images:
    """Images and their classes, in memory.

    Attributes:
        x: (n, height, width, channels), 0 to 255.
        y: (n,).
        classes: The number of classes.
    """

    x: np.ndarray
    y: np.ndarray
    classes: int

    def batches(self, size: int, *, shard: tuple[int, int] = (1, 0), seed: int | None = None) -> tf.data.Dataset:
        """Return batches of a shard of the images.

        Args:
            size: The size of a batch.
            shard: The number of shards, and the index of this shard.
            seed: The seed of the shuffle, after which an incomplete last batch is dropped; None: all images in order.
        """
        dataset = tf.data.Dataset.from_tensor_slices((self.x, self.y))
        if seed is not None:
            # shuffle in the same order on all workers, before sharding
            dataset = dataset.shuffle(len(self.x), seed=seed)
        return dataset.shard(*shard).batch(size, drop_remainder=seed is not None).prefetch(2)


def load(args: argparse.Namespace) -> tuple[Images, Images]:
    """Return training and validation images; validation gets a fifth of the digits, or random images."""
    rng = np.random.default_rng(args.seed)
    dataset = args.dataset or {"lenet5": "digits", "resnet50": "synthetic"}[args.model]
    if dataset == "digits":
        from sklearn.datasets import load_digits

        digits = load_digits()
        x = np.kron(digits.images * 15.9, np.ones((1, 3, 3)))  # (1797, 24, 24): each pixel becomes 3 x 3
        x = np.pad(x, [(0, 0), (2, 2), (2, 2)])[..., np.newaxis].astype("float32")  # (1797, 28, 28, 1)
        order = rng.permutation(len(x))
        x, y, classes = x[order], digits.target[order].astype("int64"), 10
    else:
        size, channels, classes = (28, 1, 10) if args.model == "lenet5" else (args.image_size, 3, 1000)
        count = args.samples * 6 // 5
        y = rng.integers(classes, size=count)  # (n,)
        x = rng.uniform(0, 255, size=(count, size, size, channels)).astype("float32")  # (n, 28, 28, 1)
    held_out_samples = len(x) // (5 if dataset == "digits" else 6)
    return Images(x[held_out_samples:], y[held_out_samples:], classes), Images(
        x[:held_out_samples], y[:held_out_samples], classes
    )
