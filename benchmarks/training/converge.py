"""Training of a small network on real images, for each of some seeds; rank 0 prints the test accuracies.

    HPCRUN_VIRTUAL_WORKERS=4 HPCRUN_COMPRESS=ternary mpiexec -n 2 python benchmarks/training/converge.py lenet5

The images are scikit-learn's 1,797 digits, of which each seed holds out another fifth, or CIFAR-10 (``--cifar10``).
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import hpcrun.train

hpcrun.train.init()

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers, ops  # noqa: E402
from networks import lenet5  # noqa: E402


def resnet8(shape: tuple[int, ...]) -> keras.Model:
    """Return a residual network of eight layers for small images (He et al., arXiv:1512.03385, section 4.2)."""
    images = keras.Input(shape)  # (batch, height, width, channels)
    x = layers.Activation("relu")(convolution(images, 16, 1))
    for filters, stride in ((16, 1), (32, 2), (64, 2)):
        y = convolution(layers.Activation("relu")(convolution(x, filters, stride)), filters, 1)
        shortcut = x if x.shape[-1] == filters else layers.Conv2D(filters, 1, strides=stride)(x)
        x = layers.Activation("relu")(layers.Add()([shortcut, y]))
    return keras.Model(images, layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling2D()(x)))


def convolution(x: keras.KerasTensor, filters: int, stride: int) -> keras.KerasTensor:
    """Apply a convolution of 3 x 3 pixels and batch normalization."""
    x = layers.Conv2D(filters, 3, strides=stride, padding="same", use_bias=False)(x)
    return layers.BatchNormalization(momentum=0.9)(x)


def digits(seed: int, size: int) -> tuple[np.ndarray, ...]:
    """Return scikit-learn's digits as training and test data; seeds hold out different fifths.

    Args:
        seed: The seed.
        size: Height and width of the images in pixels, 8 or 32.
    """
    from sklearn.datasets import load_digits

    loaded = load_digits()
    x = np.kron(loaded.images / 16, np.ones((1, size // 8, size // 8)))[..., np.newaxis].astype("float32")
    order = np.random.default_rng(0).permutation(len(x))
    test = order[seed % 5 :: 5]
    train = np.setdiff1d(order, test, assume_unique=True)
    return x[train], loaded.target[train], x[test], loaded.target[test]


def cifar10_batches(folder: str, batch_size: int, seed: int) -> tuple[Any, Any, int]:
    """Return the training and test batches of CIFAR-10, and the number of training images.

    Args:
        folder: The folder with ``cifar-10-binary.tar.gz``, its files, or shards of ``hpcrun data cifar10``.
        batch_size: The number of training images in a batch of all ranks.
        seed: The seed of the shuffle.
    """
    from hpcrun.train import images

    train, test = (images.read_cifar10(folder, split) for split in ("train", "validation"))
    batches = train.batches(batch_size, 32, shuffle=True, seed=seed), test.batches(500, 32)
    training, testing = (
        hpcrun.train.map_batches(one, lambda x, y: (ops.cast(x, "float32") / 255, y)) for one in batches
    )
    return training, testing, len(train)


def digit_batches(size: int, batch_size: int, seed: int) -> tuple[Any, Any, int]:
    """Return the training and test batches of scikit-learn's digits, and the number of training images."""
    x, y, x_test, y_test = digits(seed, size)
    training = hpcrun.train.dataset(x, y, batch_size=batch_size, shuffle=True, seed=seed)
    return training, hpcrun.train.dataset(x_test, y_test, batch_size=500), len(x)


NETWORKS = {"lenet5": (lenet5, 32, 0.02), "resnet8": (resnet8, 8, 0.1)}
"""The function that builds a network, the size of the digits in pixels, and the learning rate."""


def train(args: argparse.Namespace, seed: int) -> list[float]:
    """Return the test accuracy of each epoch of a training."""
    build, size, rate = NETWORKS[args.network]
    if args.cifar10:
        shape = (32, 32, 3)
        training, test, samples = cifar10_batches(args.cifar10, args.batch_size, seed)
    else:
        shape = (size, size, 1)
        training, test, samples = digit_batches(size, args.batch_size, seed)
    keras.utils.set_random_seed(seed)
    model = hpcrun.train.Model(build(shape))
    steps = args.epochs * -(-samples // args.batch_size)
    optimizer = keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(rate, steps), momentum=0.9)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return list(model.fit(training, epochs=args.epochs, validation_data=test, verbose=0).history["val_accuracy"])


def main() -> None:
    """Train with each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--cifar10", default="", metavar="FOLDER")
    args = parser.parse_args()
    accuracies = [train(args, seed) for seed in range(args.seeds)]
    if hpcrun.train.is_chief():
        print(json.dumps({"accuracies": accuracies}), flush=True)


main()
