"""ResNet-50 and other networks on ImageNet or the user's images, data-parallel.

The defaults are the recipe of Goyal et al., "Accurate, Large Minibatch SGD" (arXiv:1706.02677, sections 2 and 5.1), for
ResNet-50 (He et al., arXiv:1512.03385): a learning rate of 0.1 per 256 images of the batch with a warm-up of 5 epochs,
a tenth of the rate after 30, 60 and 80 of 90 epochs, and a weight decay of 0.0001.
"""

from __future__ import annotations

import os
from functools import partial

import hpcrun.train

args = hpcrun.train.options(__file__)
hpcrun.train.init()  # starts MPI, and TensorFlow on this rank's cores and GPU, before the import of Keras

import keras  # noqa: E402
import networks  # noqa: E402  (in this folder)
import numpy as np  # noqa: E402

from hpcrun.train import images  # noqa: E402
from hpcrun.train.saved_model import image_size  # noqa: E402

keras.utils.set_random_seed(args.seed)
if args.precision != "float32":
    keras.mixed_precision.set_global_policy(args.precision)
pretrained = hpcrun.train.load_model(args.fine_tune) if args.fine_tune else None
size = image_size(pretrained, channels=[3]) if pretrained else args.image_size
data_dir = args.data_dir or os.environ.get("HPCRUN_DATA_IMAGENET")

# Data: images, uint8 (b, 224, 224, 3), and classes from 0, (b,); a rank decodes only its own samples.
if args.synthetic_data:
    generator = np.random.default_rng(args.seed)
    names, classes = None, args.num_classes
    image_pool = generator.integers(256, size=(64, size, size, 3), dtype=np.uint8)  # (64, 224, 224, 3)

    def make_synthetic_batches(samples: int, **options: bool) -> object:
        """Make batches of random images, for speed measurements only."""
        indices, labels = np.arange(samples) % len(image_pool), generator.integers(classes, size=samples)  # (n,), (n,)
        load = partial(keras.ops.take, image_pool, axis=0)  # (b,) -> (b, 224, 224, 3)
        return hpcrun.train.dataset(indices, labels, batch_size=args.batch_size, load=load, seed=args.seed, **options)

    training = make_synthetic_batches(args.train_num_samples or 2560, shuffle=True)
    validation = make_synthetic_batches(args.val_num_samples or 256)
elif data_dir:
    train = images.read_split(data_dir, "train", limit=args.train_num_samples, skip_bad=args.skip_bad)
    validation_images = images.read_split(data_dir, "validation", limit=args.val_num_samples, skip_bad=args.skip_bad)
    names, classes = train.names, len(train.names)
    batch_options = {"batch_size": args.batch_size, "size": size, "cache": args.cache}
    training = train.batches(**batch_options, augment=args.augment, shuffle=True, seed=args.seed)
    validation = validation_images.batches(**batch_options)
else:
    raise hpcrun.train.HpcrunError(
        "resnet50 has no images: give --data-dir (or $HPCRUN_DATA_IMAGENET) or --synthetic-data",
        hint="--data-dir FOLDER trains on its images, --synthetic-data on random ones, to measure speed only",
    )


def encode_one_hot(x: object, y: object) -> tuple[object, object]:
    """Convert classes to one-hot vectors, (b, classes), which label smoothing needs."""
    return x, keras.ops.one_hot(y, classes)


training, validation = (
    hpcrun.train.map_batches(batches_of_split, encode_one_hot) for batches_of_split in (training, validation)
)

# Model: the network with its preprocessing; weight decay is part of the loss.
if pretrained:
    network = hpcrun.train.replace_head(pretrained, classes, freeze=args.freeze)
    networks.decay_weights(network, args.weight_decay)
else:
    network = networks.build(
        args.arch, size, classes, weight_decay=args.weight_decay, synchronized=args.sync_batch_norm
    )
model = hpcrun.train.Model(network)
learning_rate = networks.ARCHITECTURES[args.arch].learning_rate if args.learning_rate is None else args.learning_rate
scale = args.batch_size / 256  # Goyal et al., section 2.1: the learning rate is proportional to the batch size
optimizer = keras.optimizers.SGD(learning_rate * min(scale, 1), momentum=args.momentum)
model.compile(
    optimizer=hpcrun.train.average_weights(optimizer, args.ema),
    loss=keras.losses.CategoricalCrossentropy(label_smoothing=args.label_smoothing),
    metrics=["accuracy", keras.metrics.TopKCategoricalAccuracy(5, name="top_5_accuracy")],
    jit_compile=args.xla,
    steps_per_execution=args.steps_per_execution,
)

epochs = args.train_epochs
warmup_epochs = min(5, epochs * 5 / 90) if args.warmup_epochs is None else args.warmup_epochs
rate_callback = hpcrun.train.WarmupScaling(
    warmup_epochs if scale > 1 else 0, factor=max(scale, 1), decay=hpcrun.train.decay(args.schedule, epochs)
)
history = model.fit(
    training,
    epochs=epochs,
    validation_data=validation,
    validation_freq=args.val_freq,
    callbacks=[rate_callback, *hpcrun.train.run_callbacks(names, log_every=args.log_every)],
).history

hpcrun.train.write_result(
    **{f"final_{name}": values[-1] for name, values in history.items()},
    arch=pretrained.name if pretrained else args.arch,
)
