"""Inception-v3 (Szegedy et al., arXiv:1512.00567) as TensorFlow's program imagenet_train.py trains it, data-parallel.

The defaults are those of imagenet_train.py: RMSProp with decay 0.9, momentum 0.9 and epsilon 1; a learning rate of 0.1,
multiplied by 0.16 every 30 epochs; label smoothing 0.1, weight decay 0.00004, and moving averages of the weights with
factor 0.9999, which are validated and saved. Differences: Keras's network has no auxiliary classifier, RMSProp's
averages start at 0 instead of 1, and there is no background class: label 1 of a record is class 0.
"""

from __future__ import annotations

import os

import hpcrun.train

args = hpcrun.train.options(__file__)
hpcrun.train.init()  # starts MPI, and TensorFlow on this rank's cores and GPU, before the import of Keras

import keras  # noqa: E402

from hpcrun.train import images  # noqa: E402
from hpcrun.train.saved_model import image_size  # noqa: E402

keras.utils.set_random_seed(args.seed)
pretrained = hpcrun.train.load_model(args.fine_tune) if args.fine_tune else None
size = image_size(pretrained, channels=[3]) if pretrained else args.image_size
data_dir = args.data_dir or os.environ.get("HPCRUN_DATA_IMAGENET")
if not data_dir:
    raise hpcrun.train.HpcrunError(
        "inception has no images: give --data-dir (or $HPCRUN_DATA_IMAGENET)",
        hint="hpcrun data build or hpcrun data imagenet writes a folder for --data-dir",
    )

# Data: images, uint8 (b, 299, 299, 3), and classes from 0, (b,); a rank decodes only its own samples.
train = images.read_split(data_dir, "train", limit=args.train_num_samples, skip_bad=args.skip_bad)
validation_images = images.read_split(data_dir, "validation", limit=args.val_num_samples, skip_bad=args.skip_bad)
classes, batch_options = len(train.names), {"batch_size": args.batch_size, "size": size}
training = train.batches(**batch_options, augment=args.augment, shuffle=True, seed=args.seed)
validation = validation_images.batches(**batch_options)


def encode_one_hot(x: object, y: object) -> tuple[object, object]:
    """Convert classes to one-hot vectors, (b, classes), which label smoothing needs."""
    return x, keras.ops.one_hot(y, classes)


training, validation = (
    hpcrun.train.map_batches(batches_of_split, encode_one_hot) for batches_of_split in (training, validation)
)

# Model: the network with its preprocessing; weight decay is part of the loss.
if pretrained:
    network = hpcrun.train.replace_head(pretrained, classes, freeze=args.freeze)
else:
    pixels = keras.Input((size, size, 3), dtype="uint8")  # (batch, 299, 299, 3)
    scaled_pixels = keras.layers.Rescaling(1 / 127.5, offset=-1)(pixels)  # (batch, 299, 299, 3), -1 to 1
    network = keras.applications.InceptionV3(
        weights=None, classes=classes, input_tensor=scaled_pixels
    )  # (batch, classes)
for layer in network.layers:
    if isinstance(layer, keras.layers.BatchNormalization):
        layer.momentum = 0.9  # with Keras's 0.99, the statistics would be wrong for hundreds of steps
for variable in network.trainable_variables:
    if variable.name == "kernel":
        variable.regularizer = keras.regularizers.L2(args.weight_decay / 2)  # the gradient is weight_decay * kernel
model = hpcrun.train.Model(network)
optimizer = keras.optimizers.RMSprop(args.learning_rate, rho=0.9, momentum=0.9, epsilon=1.0)
model.compile(
    optimizer=hpcrun.train.average_weights(optimizer, args.ema),
    loss=keras.losses.CategoricalCrossentropy(label_smoothing=args.label_smoothing),
    metrics=["accuracy", keras.metrics.TopKCategoricalAccuracy(5, name="top_5_accuracy")],
)

decay = hpcrun.train.decay(
    "exponential", args.train_epochs, factor=args.decay_factor, epochs_per_decay=args.epochs_per_decay
)
history = model.fit(
    training,
    epochs=args.train_epochs,
    validation_data=validation,
    validation_freq=args.val_freq,
    callbacks=[
        hpcrun.train.WarmupScaling(0, factor=1, decay=decay),
        *hpcrun.train.run_callbacks(train.names, log_every=args.log_every),
    ],
).history

hpcrun.train.write_result(**{f"final_{name}": values[-1] for name, values in history.items()})
