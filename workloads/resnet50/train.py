"""ResNet-50 (He et al., "Deep Residual Learning for Image Recognition", arXiv:1512.03385), data-parallel."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import hpcrun.train

args = hpcrun.train.options(__file__)
hpcrun.train.init()  # MPI first, then TensorFlow on this rank's cores and GPU: before Keras is imported

import keras  # noqa: E402
import numpy as np  # noqa: E402

keras.utils.set_random_seed(args.seed)
size, draw = args.image_size, np.random.default_rng(args.seed)
data_dir = args.data_dir or os.environ.get("HPCRUN_DATA_IMAGENET")


def tree(folder: Path) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the files (n,) of ``folder/<class>/`` in a random order, their classes (n,), and the number of classes."""
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
    pairs = sorted((str(file), k) for k, name in enumerate(names) for file in (folder / name).iterdir())
    if not pairs:
        raise hpcrun.train.HpcrunError(
            f"there are no images in {folder}/<class>/",
            hint="--data-dir FOLDER with train/<class>/*.JPEG and val/<class>/*.JPEG, or --synthetic-data",
        )
    pairs = [pairs[i] for i in draw.permutation(len(pairs))]
    return np.array([file for file, _ in pairs]), np.array([k for _, k in pairs]), len(names)


# Data: indices or file names, which `load` converts to images; a rank loads only its own.
if args.synthetic_data:
    classes = args.num_classes
    pool = draw.integers(256, size=(64, size, size, 3), dtype=np.uint8)  # (64, 224, 224, 3)
    load = partial(keras.ops.take, pool, axis=0)  # (b,) -> (b, 224, 224, 3)
    x_train, x_val = (np.arange(n) % 64 for n in (args.train_num_samples or 2560, args.val_num_samples or 256))
    y_train, y_val = (draw.integers(classes, size=len(x)) for x in (x_train, x_val))
elif data_dir:
    load = partial(hpcrun.train.read_jpegs, size=size)  # (b,) -> (b, 224, 224, 3)
    x_train, y_train, classes = tree(Path(data_dir, "train"))
    x_val, y_val, _ = tree(Path(data_dir, "val"))
else:
    raise hpcrun.train.HpcrunError(
        "resnet50 has no images: give --data-dir (or $HPCRUN_DATA_IMAGENET) or --synthetic-data",
        hint="--data-dir FOLDER trains on ImageNet, --synthetic-data on random images, to measure speed only",
    )
x_train, y_train = (a[: args.train_num_samples or None] for a in (x_train, y_train))
x_val, y_val = (a[: args.val_num_samples or None] for a in (x_val, y_val))
batches = partial(hpcrun.train.dataset, batch_size=args.batch_size, load=load)

# Model: learning rate and initial weights as in Goyal et al., arXiv:1706.02677, sections 2.1 and 5.1.
images = keras.Input((size, size, 3), dtype="uint8")  # (batch, 224, 224, 3)
pixels = keras.layers.Rescaling(1 / 127.5, offset=-1)(images)  # (batch, 224, 224, 3), -1 to 1
network = keras.applications.ResNet50(weights=None, classes=classes, input_tensor=pixels)  # (batch, classes)
for layer in network.layers:
    if layer.name.endswith("_3_bn"):  # last layer of a block: with gamma = 0 the block starts as the identity
        layer.gamma.assign(keras.ops.zeros_like(layer.gamma))
model = hpcrun.train.Model(network)
model.compile(
    optimizer=keras.optimizers.SGD(args.learning_rate * args.batch_size / 256, momentum=0.9),
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy"],
)

history = model.fit(
    batches(x_train, y_train, shuffle=True, seed=args.seed),
    epochs=args.train_epochs,
    validation_data=batches(x_val, y_val),
    validation_freq=args.val_freq,
).history

hpcrun.train.write_result(**{f"final_{name}": values[-1] for name, values in history.items()})
