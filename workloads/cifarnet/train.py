"""CifarNet on CIFAR-10 with the settings of TernGrad's experiments, data-parallel.

The network of TensorFlow's CIFAR-10 tutorial has two convolutions and two hidden layers; its inputs are crops of 24 x
24 pixels. TernGrad (Wen et al., arXiv:1705.07878) trains the network with Adam, a constant learning rate of 0.0002, and
128 images per step for 200,000 steps, which are 512 epochs.
"""

from __future__ import annotations

import os

import hpcrun.train

args = hpcrun.train.options(__file__)
hpcrun.train.init()  # starts MPI, and TensorFlow on this rank's cores and GPU, before the import of Keras

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers, ops  # noqa: E402

from hpcrun.train import images  # noqa: E402

if args.precision != "float32":
    keras.mixed_precision.set_global_policy(args.precision)
keras.utils.set_random_seed(args.seed)
SIZE, CROP = 32, 24  # pixels

# Data: images, uint8 (b, 32, 32, 3), and classes from 0, (b,); a rank decodes only its own samples.
data_dir = args.data_dir or os.environ.get("HPCRUN_DATA_CIFAR10")
if args.synthetic_data:
    generator = np.random.default_rng(args.seed)
    names, labels = None, generator.integers(10, size=2048)  # (2048,)
    pixels = generator.integers(256, size=(2048, SIZE, SIZE, 3), dtype=np.uint8)  # (2048, 32, 32, 3)
    options = {"batch_size": args.batch_size, "seed": args.seed}
    training = hpcrun.train.dataset(pixels, labels, shuffle=True, **options)
    test = hpcrun.train.dataset(pixels[:256], labels[:256], **options)
elif data_dir:
    train, validation_images = (images.read_cifar10(data_dir, split) for split in ("train", "validation"))
    names = train.names
    training = train.batches(args.batch_size, SIZE, augment="cifar", shuffle=True, seed=args.seed)
    test = validation_images.batches(args.batch_size, SIZE)
else:
    raise hpcrun.train.HpcrunError(
        "cifarnet has no images: give --data-dir (or $HPCRUN_DATA_CIFAR10) or --synthetic-data",
        hint="--data-dir ~/.keras/datasets, or another folder with cifar-10-binary.tar.gz or its files or shards",
    )


def local_response_normalization(x: keras.KerasTensor) -> keras.KerasTensor:
    """Apply local response normalization over the 9 nearest channels (Krizhevsky et al., 2012, section 3.3)."""
    x, channel = ops.cast(x, "float32"), np.arange(x.shape[-1])
    is_neighbour = np.abs(channel[:, np.newaxis] - channel) <= 4  # (64, 64)
    scale = ops.rsqrt(1 + ops.matmul(ops.square(x), np.float32(0.001 / 9) * is_neighbour))
    return x * scale * ops.sqrt(scale)  # x / (...) ** 0.75, without logarithms


# Model: random shifts of up to 4 pixels (augment="cifar") before CenterCrop have the effect of random crops.
conv_options = {"padding": "same", "activation": "relu"}
dense_options = {"activation": "relu", "kernel_regularizer": keras.regularizers.L2(args.weight_decay / 2)}
inputs = keras.Input((SIZE, SIZE, 3), dtype="uint8")  # (batch, 32, 32, 3)
x = layers.Rescaling(1.0)(layers.CenterCrop(CROP, CROP)(inputs))  # (batch, 24, 24, 3)
x = layers.LayerNormalization(axis=(1, 2, 3), center=False, scale=False)(x)  # normalizes each image
x = layers.Conv2D(64, 5, **conv_options)(x)  # (batch, 24, 24, 64)
x = local_response_normalization(layers.MaxPooling2D(3, strides=2, padding="same")(x))  # (batch, 12, 12, 64)
x = local_response_normalization(layers.Conv2D(64, 5, **conv_options)(x))  # (batch, 12, 12, 64)
x = layers.MaxPooling2D(3, strides=2, padding="same")(x)  # (batch, 6, 6, 64)
x = layers.Flatten()(x)  # (batch, 2304)
x = layers.Dense(384, **dense_options)(x)  # (batch, 384)
x = layers.Dense(192, **dense_options)(x)  # (batch, 192)
outputs = layers.Dense(10, activation="softmax", dtype="float32")(x)  # (batch, 10)
model = hpcrun.train.Model(keras.Model(inputs, outputs))
optimizer = keras.optimizers.Adam(args.learning_rate)
model.compile(
    optimizer=hpcrun.train.average_weights(optimizer, args.ema),
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy"],
)

history = model.fit(
    training,
    epochs=args.epochs,
    validation_data=test,
    callbacks=hpcrun.train.run_callbacks(names, log_every=args.log_every),
).history

hpcrun.train.write_result(
    test_accuracy=history["val_accuracy"][-1],
    test_loss=history["val_loss"][-1],
    final_loss=history["loss"][-1],
)
