"""The networks of the benchmarks, trained on random numbers; for Keras 2.15 and later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import keras
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable


def _resnet50() -> keras.Model:
    return keras.applications.ResNet50(weights=None, input_shape=(32, 32, 3))  # (batch, 1000)


def lenet5(shape: tuple[int, ...] = (32, 32, 1)) -> keras.Model:
    """Return LeNet-5 with ReLU and maximum pooling, as in the workload `lenet5`.

    Args:
        shape: The shape of an image; height and width are 32.
    """
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(shape),
            layers.Conv2D(6, 5, activation="relu"),  # (batch, 28, 28, 6)
            layers.MaxPooling2D(),  # (batch, 14, 14, 6)
            layers.Conv2D(16, 5, activation="relu"),  # (batch, 10, 10, 16)
            layers.MaxPooling2D(),  # (batch, 5, 5, 16)
            layers.Flatten(),  # (batch, 400)
            layers.Dense(120, activation="relu"),  # (batch, 120)
            layers.Dense(84, activation="relu"),  # (batch, 84)
            layers.Dense(10, activation="softmax"),  # (batch, 10)
        ]
    )


@dataclass(frozen=True)
class Network:
    """A network of the benchmarks.

    Attributes:
        build: A function that returns the network with its initial weights.
        shape: The shape of one image.
        classes: The number of classes.
        batch: Number of images per rank and step.
    """

    build: Callable[[], keras.Model]
    shape: tuple[int, ...]
    classes: int
    batch: int

    def data(self, images: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Return random images (images, *shape) and their classes (images,).

        Args:
            images: The number of images.
            seed: The seed.
        """
        draw = np.random.default_rng(seed)
        return draw.normal(size=(images, *self.shape)).astype("float32"), draw.integers(self.classes, size=images)


# Small images shorten the convolutions, and do not change the size of the gradients.
NETWORKS = {
    "resnet50": Network(_resnet50, (32, 32, 3), 1000, 8),
    "lenet5": Network(lenet5, (32, 32, 1), 10, 64),
}
