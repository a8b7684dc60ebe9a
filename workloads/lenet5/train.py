"""LeNet-5 (LeCun et al., "Gradient-Based Learning Applied to Document Recognition", 1998), data-parallel."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import hpcrun.train

args = hpcrun.train.options(__file__)
hpcrun.train.init()  # starts MPI, and TensorFlow on this rank's cores and GPU, before the import of Keras

import keras  # noqa: E402
import numpy as np  # noqa: E402

from hpcrun.train import images  # noqa: E402

keras.utils.set_random_seed(args.seed)

# Data: 28 x 28 images of one channel, which the model pads to 32 x 32 as in the paper.
folder = Path(args.data_dir or Path(os.environ.get("KERAS_HOME", "~/.keras"), "datasets")).expanduser()
file = folder / "mnist.npz"
default_dataset = "mnist" if file.is_file() else "shards" if args.data_dir and any(folder.glob("train-*")) else "digits"
dataset = args.dataset or default_dataset
if args.data_dir and (args.dataset, dataset) == (None, "digits"):
    hint = "hpcrun data mnist FOLDER writes shards, or give --dataset digits for those of scikit-learn"
    raise hpcrun.train.HpcrunError(f"{folder} has neither mnist.npz nor shards", hint=hint)
if dataset == "shards":  # shards that `hpcrun data mnist` wrote
    train, validation_images = (images.read_split(folder, split) for split in ("train", "validation"))

    def keep_one_channel(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return one of three equal channels, (b, 28, 28, 1), and the labels."""
        return x[..., :1], y

    training = train.batches(args.batch_size, 28, shuffle=True, seed=args.seed)
    training, test = (
        hpcrun.train.map_batches(batches, keep_one_channel)
        for batches in (training, validation_images.batches(1000, 28))
    )
    validation = test
else:
    if dataset == "mnist":
        if not file.is_file():
            hint = "--data-dir FOLDER with mnist.npz, or --dataset digits"
            raise hpcrun.train.HpcrunError(f"{file} does not exist", hint=hint)
        with np.load(file) as mnist:
            x, y = mnist["x_train"], mnist["y_train"]  # (60000, 28, 28), (60000,)
            x_test, y_test = mnist["x_test"], mnist["y_test"]  # (10000, 28, 28), (10000,)
    else:
        if dataset == "digits":
            from sklearn.datasets import load_digits

            digits = load_digits()
            x, y = digits.images / 16, digits.target  # (1797, 8, 8), (1797,)
        else:
            y = np.random.default_rng(args.seed).integers(10, size=6000)  # (6000,)
            x = np.random.default_rng(args.seed).uniform(size=(10, 8, 8))[y]  # (6000, 8, 8)
        x = np.kron(x, np.ones((1, 3, 3)))  # (n, 24, 24): each pixel becomes 3 x 3
        x = np.pad(np.round(255 * x).astype("uint8"), [(0, 0), (2, 2), (2, 2)])  # (n, 28, 28)
        order = np.random.default_rng(args.seed).permutation(len(x))
        x, y = x[order], y[order]
        held_out_samples = len(x) // 5
        x, x_test, y, y_test = x[held_out_samples:], x[:held_out_samples], y[held_out_samples:], y[:held_out_samples]
    held_out_samples = len(x) // 10
    make_batches = partial(hpcrun.train.dataset, batch_size=args.batch_size, seed=args.seed)
    training = make_batches(x[held_out_samples:, ..., np.newaxis], y[held_out_samples:], shuffle=True)
    validation, test = (
        make_batches(x[:held_out_samples, ..., np.newaxis], y[:held_out_samples]),
        make_batches(x_test[..., np.newaxis], y_test),
    )

# Model: the layers of the paper, with ReLU, maximum pooling and softmax.
model = hpcrun.train.Model(
    keras.Sequential(
        [
            keras.Input((28, 28, 1), dtype="uint8"),
            keras.layers.Rescaling(1 / 255),  # (batch, 28, 28, 1), 0 to 1
            keras.layers.ZeroPadding2D(2),  # (batch, 32, 32, 1)
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

callbacks = hpcrun.train.run_callbacks([str(digit) for digit in range(10)], log_every=args.log_every)
model.fit(training, epochs=args.epochs, validation_data=validation, callbacks=callbacks)
loss, accuracy = model.evaluate(test)

hpcrun.train.write_result(
    test_accuracy=accuracy,
    test_loss=loss,
    dataset=dataset,
)
