"""Training of a small network on real images, for each of some seeds; rank 0 prints the test accuracies.

    HPCRUN_VIRTUAL_WORKERS=4 HPCRUN_COMPRESS=ternary mpiexec -n 2 python benchmarks/training/converge.py lenet5

The images are scikit-learn's 1,797 digits, of which each seed holds out another fifth, or CIFAR-10 (``--cifar10``).
The learning rate decreases as a cosine. The optimizer is that of the network's authors, or SGD with momentum.
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

from hpcrun.train import images  # noqa: E402


def resnet8(shape: tuple[int, ...]) -> keras.Model:
    """Return a residual network of eight layers for small images (He et al., arXiv:1512.03385, section 4.2)."""
    images = keras.Input(shape)  # (batch, height, width, channels)
    x = layers.Activation("relu")(convolution(images, 16, 1))
    for filters, stride in ((16, 1), (32, 2), (64, 2)):
        y = convolution(layers.Activation("relu")(convolution(x, filters, stride)), filters, 1)
        shortcut = x if x.shape[-1] == filters else layers.Conv2D(filters, 1, strides=stride)(x)
        x = layers.Activation("relu")(layers.Add()([shortcut, y]))
    outputs = layers.Dense(10, activation="softmax", dtype="float32")(layers.GlobalAveragePooling2D()(x))
    return keras.Model(images, outputs)


def convolution(x: keras.KerasTensor, filters: int, stride: int) -> keras.KerasTensor:
    """Apply a convolution of 3 x 3 pixels and batch normalization."""
    x = layers.Conv2D(filters, 3, strides=stride, padding="same", use_bias=False)(x)
    return layers.BatchNormalization(momentum=0.9)(x)


def cifarnet(shape: tuple[int, ...]) -> keras.Model:
    """Return CifarNet, as in the workload `cifarnet`.

    Args:
        shape: The shape of an image; the network takes the 24 x 24 pixels at its center.
    """

    def normalize_responses(x: keras.KerasTensor) -> keras.KerasTensor:
        x, is_neighbour = ops.cast(x, "float32"), np.abs(np.subtract.outer(np.arange(64), np.arange(64))) <= 4
        scale = ops.rsqrt(1 + ops.matmul(ops.square(x), np.float32(0.001 / 9) * is_neighbour))
        return x * scale * ops.sqrt(scale)

    def convolve(x: keras.KerasTensor) -> keras.KerasTensor:
        return layers.Conv2D(64, 5, padding="same", activation="relu")(x)

    def pool(x: keras.KerasTensor) -> keras.KerasTensor:
        return layers.MaxPooling2D(3, strides=2, padding="same")(x)

    inputs = keras.Input(shape)  # (batch, height, width, channels)
    x = layers.LayerNormalization(axis=(1, 2, 3), center=False, scale=False)(layers.CenterCrop(24, 24)(inputs))
    x = normalize_responses(pool(convolve(x)))  # (batch, 12, 12, 64)
    x = layers.Flatten()(pool(normalize_responses(convolve(x))))  # (batch, 2304)
    for units in (384, 192):
        x = layers.Dense(units, activation="relu", kernel_regularizer=keras.regularizers.L2(0.002))(x)
    return keras.Model(inputs, layers.Dense(10, activation="softmax", dtype="float32")(x))


def digits(seed: int, size: int) -> tuple[np.ndarray, ...]:
    """Return scikit-learn's digits as training and test data; seeds hold out different fifths.

    Args:
        seed: The seed.
        size: Height and width of the images in pixels, a multiple of 8.
    """
    from sklearn.datasets import load_digits

    loaded = load_digits()
    x = np.kron(loaded.images / 16, np.ones((1, size // 8, size // 8)))[..., np.newaxis].astype("float32")
    order = np.random.default_rng(0).permutation(len(x))
    test = order[seed % 5 :: 5]
    train = np.setdiff1d(order, test, assume_unique=True)
    return x[train], loaded.target[train], x[test], loaded.target[test]


def cifar10_batches(folder: str, count: int, batch_size: int, seed: int) -> tuple[Any, Any, int]:
    """Return the training and test batches of CIFAR-10, and the number of training images.

    Args:
        folder: The folder with ``cifar-10-binary.tar.gz``, its files, or shards of ``hpcrun data cifar10``.
        count: The number of training images, from the first.
        batch_size: The number of training images in a batch of all ranks.
        seed: The seed of the shuffle.
    """
    every, test = (images.read_cifar10(folder, split) for split in ("train", "validation"))
    train = images.ImageSet(every.content.select(np.arange(len(every))[:count]), every.labels[:count], every.names)
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


def sgd(learning_rate: keras.optimizers.schedules.LearningRateSchedule) -> keras.optimizers.Optimizer:
    """Return SGD with momentum."""
    return keras.optimizers.SGD(learning_rate, momentum=0.9)


NETWORKS = {
    "lenet5": (lenet5, 32, sgd, 0.02),
    "resnet8": (resnet8, 8, sgd, 0.1),
    "cifarnet": (cifarnet, 24, keras.optimizers.Adam, 0.001),
}
"""The function that builds a network, the size of the digits in pixels, the optimizer, and the learning rate."""


def train(args: argparse.Namespace, seed: int) -> list[float]:
    """Return the test accuracy of each epoch of a training."""
    build, size, make_optimizer, rate = NETWORKS[args.network]
    if args.cifar10:
        shape = (32, 32, 3)
        training, test, samples = cifar10_batches(args.cifar10, args.images, args.batch_size, seed)
    else:
        shape = (size, size, 1)
        training, test, samples = digit_batches(size, args.batch_size, seed)
    keras.mixed_precision.set_global_policy(args.precision)
    keras.utils.set_random_seed(seed)
    model = hpcrun.train.Model(build(shape))
    steps = args.epochs * -(-samples // args.batch_size)
    optimizer = make_optimizer(keras.optimizers.schedules.CosineDecay(rate, steps))
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return list(model.fit(training, epochs=args.epochs, validation_data=test, verbose=0).history["val_accuracy"])


def main() -> None:
    """Train with each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--precision", default="float32", help="the precision of the layers, as in Keras's policies")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--cifar10", default="", metavar="FOLDER")
    parser.add_argument("--images", type=int, default=50_000, help="the number of CIFAR-10's training images")
    args = parser.parse_args()
    accuracies = [train(args, seed) for seed in range(args.seeds)]
    if hpcrun.train.is_chief():
        print(json.dumps({"accuracies": accuracies}), flush=True)


main()
