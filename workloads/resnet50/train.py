"""ResNet-50 (He et al., "Deep Residual Learning for Image Recognition", arXiv:1512.03385), data-parallel."""

from __future__ import annotations

import os
from pathlib import Path

import keras
import numpy as np

import hpcrun.train

args = hpcrun.train.options(__file__)
hpcrun.train.init()
keras.utils.set_random_seed(args.seed)
size, draw = args.image_size, np.random.default_rng(args.seed)
data_dir = args.data_dir or os.environ.get("HPCRUN_DATA_IMAGENET")


def files(folder):
    """Return the image files of a class-folder tree in a random order, with their classes, as (n,) and (n,)."""
    classes = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir()) if folder.is_dir() else []
    pairs = [(f"{folder}/{name}/{file}", k) for k, name in enumerate(classes) for file in os.listdir(folder / name)]
    if not pairs:
        raise hpcrun.train.HpcrunError(
            f"there are no images in {folder}/<class>/",
            hint="--data-dir FOLDER with train/<class>/*.JPEG and val/<class>/*.JPEG, or --synthetic-data",
        )
    paths, labels = zip(*sorted(pairs), strict=True)
    order = draw.permutation(len(pairs))
    return np.array(paths)[order], np.array(labels)[order], len(classes)


# Data: what travels to a rank is file names or numbers; `load` makes images of this rank's own.
if args.synthetic_data:
    classes = args.num_classes
    pool = draw.integers(256, size=(64, size, size, 3), dtype=np.uint8)  # (64, 224, 224, 3)
    train, val = (np.arange(n) for n in (args.train_num_samples or 2560, args.val_num_samples or 256))
    y_train, y_val = (draw.integers(classes, size=len(x)) for x in (train, val))

    def load(numbers):  # (b,)
        return keras.ops.take(pool, numbers % len(pool), axis=0)  # (b, 224, 224, 3)

elif data_dir:
    train, y_train, classes = files(Path(data_dir, "train"))
    val, y_val, _ = files(Path(data_dir, "val"))

    def load(paths):  # (b,)
        return hpcrun.train.read_jpegs(paths, size)  # (b, 224, 224, 3)

else:
    raise hpcrun.train.HpcrunError(
        "resnet50 has no images: there is neither --data-dir (or $HPCRUN_DATA_IMAGENET) nor --synthetic-data",
        hint="--data-dir FOLDER trains on ImageNet, --synthetic-data on random images, which shows the speed only",
    )

train, y_train = (a[: args.train_num_samples or None] for a in (train, y_train))
val, y_val = (a[: args.val_num_samples or None] for a in (val, y_val))
batches = hpcrun.train.dataset(train, y_train, batch_size=args.batch_size, shuffle=True, seed=args.seed, load=load)
val_batches = hpcrun.train.dataset(val, y_val, batch_size=args.batch_size, load=load)

# Model
images = keras.Input((size, size, 3), dtype="uint8")  # (batch, 224, 224, 3)
pixels = keras.layers.Rescaling(1 / 127.5, offset=-1)(images)  # (batch, 224, 224, 3), -1 to 1
model = keras.applications.ResNet50(weights=None, classes=classes, input_tensor=pixels)  # (batch, classes)
model = hpcrun.train.Model(model)
model.compile(
    optimizer=keras.optimizers.SGD(args.learning_rate, momentum=0.9),
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy"],
)

history = model.fit(
    batches,
    epochs=args.train_epochs,
    validation_data=val_batches,
    validation_freq=args.val_freq,
).history

found = {f"final_{name}": values[-1] for name, values in history.items() if name != "images_per_second"}
hpcrun.train.write_result(**found, images_per_second=np.median(history["images_per_second"]))
