"""LeNet-5 (LeCun et al., "Gradient-Based Learning Applied to Document Recognition", 1998), data-parallel."""

from __future__ import annotations

import os
from pathlib import Path

import hpcrun.train

args = hpcrun.train.options(__file__)
hpcrun.train.init()  # MPI first, then TensorFlow on this rank's cores and GPU: before Keras is imported

import keras  # noqa: E402
import numpy as np  # noqa: E402

keras.utils.set_random_seed(args.seed)

# Data: 32 x 32 images, as in the paper.
folder = Path(args.data_dir or Path(os.environ.get("KERAS_HOME", "~/.keras"), "datasets")).expanduser()
file = folder / "mnist.npz"
dataset = args.dataset or ("mnist" if file.is_file() else "digits")
if dataset == "mnist":
    if not file.is_file():
        hint = "--data-dir FOLDER with mnist.npz, or --dataset digits"
        raise hpcrun.train.HpcrunError(f"{file} does not exist", hint=hint)
    with np.load(file) as mnist:
        images, labels = mnist["x_train"] / 255, mnist["y_train"]  # (60000, 28, 28), (60000,)
        test_images, y_test = mnist["x_test"] / 255, mnist["y_test"]  # (10000, 28, 28), (10000,)
    images, test_images = (np.pad(i, [(0, 0), (2, 2), (2, 2)]) for i in (images, test_images))  # (n, 32, 32)
else:
    if dataset == "digits":
        from sklearn.datasets import load_digits

        digits = load_digits()
        images, labels = digits.images / 16, digits.target  # (1797, 8, 8), (1797,)
    else:
        labels = np.random.default_rng(args.seed).integers(10, size=6000)  # (6000,)
        images = np.random.default_rng(args.seed).uniform(size=(10, 8, 8))[labels]  # (6000, 8, 8)
    images = np.kron(images, np.ones((1, 4, 4)))  # (n, 32, 32): each pixel becomes 4 x 4
    order = np.random.default_rng(args.seed).permutation(len(images))
    images, labels = images[order], labels[order]
    held = len(images) // 5
    images, test_images, labels, y_test = images[held:], images[:held], labels[held:], labels[:held]

held = len(images) // 10
x_train, x_val, x_test = (i[..., np.newaxis].astype("float32") for i in (images[held:], images[:held], test_images))
y_train, y_val = labels[held:], labels[:held]

# Model: the paper's layers, with ReLU, maximum pooling and softmax as used today.
model = hpcrun.train.Model(
    keras.Sequential(
        [
            keras.Input((32, 32, 1)),
            keras.layers.Conv2D(6, 5, activation="relu"),  # (batch, 28, 28, 6)
            keras.layers.MaxPooling2D(),  # (batch, 14, 14, 6)
            keras.layers.Conv2D(16, 5, activation="relu"),  # (batch, 10, 10, 16)
            keras.layers.MaxPooling2D(),  # (batch, 5, 5, 16)
            keras.layers.Flatten(),  # (batch, 400)
            keras.layers.Dense(120, activation="relu"),  # (batch, 120)
            keras.layers.Dense(84, activation="relu"),  # (batch, 84)
            keras.layers.Dense(10, activation="softmax"),  # (batch, 10)
        ]
    )
)
model.compile(
    optimizer=keras.optimizers.SGD(args.learning_rate, momentum=0.9),
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy"],
)

model.fit(
    x_train,
    y_train,
    batch_size=args.batch_size,
    epochs=args.epochs,
    validation_data=(x_val, y_val),
)
loss, accuracy = model.evaluate(x_test, y_test, batch_size=1000)

hpcrun.train.write_result(
    test_accuracy=accuracy,
    test_loss=loss,
    dataset=dataset,
)
