"""Compare stages of mixed precision with a loop of the same micro-batches: pipeline_precision.py PRECISION STAGES."""

import json
import sys

import keras
import numpy as np
import tensorflow as tf
from pipeline_cases import branches, crossentropy

import hpcrun.train
from hpcrun.train.pipeline.steps import micro_batch_sizes

precision, stages = sys.argv[1], int(sys.argv[2])
BATCH, EPOCHS, MICRO_BATCHES = 16, 3, 2
hpcrun.train.init()
replicas = hpcrun.train.size() // stages
random = np.random.default_rng(0)
x = [random.normal(size=(48, size)).astype("float32") for size in (6, 4)]
y = [random.integers(0, 3, 48), random.normal(size=(48, 1)).astype("float32")]
keras.mixed_precision.set_global_policy(precision)


def compiled(model):
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.5)
    if precision == "mixed_float16":  # overflows at first, and after each growth of the scale
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=2.0**19, dynamic_growth_steps=2)
    model.compile(optimizer, loss=[crossentropy(), "mse"], loss_weights=[1.0, 0.5])
    return model


def new_network():
    keras.utils.set_random_seed(3)
    return branches()


def train_in_one_loop(model):
    """Train on the micro-batches of all replicas, one after the other."""
    model.optimizer.build(model.trainable_variables)

    @tf.function(reduce_retracing=True)
    def gradients_of(inputs, targets, weight):
        with tf.GradientTape() as tape:
            loss = weight * model.compute_loss(inputs, targets, model(inputs, training=True))
            loss = model.optimizer.scale_loss(loss)
        return tape.gradient(loss, [variable.value for variable in model.trainable_weights])

    np.seterr(invalid="ignore")  # overflows
    for start in [*range(0, 48, BATCH)] * EPOCHS:
        total = [np.zeros(weight.shape, np.float32) for weight in model.trainable_weights]
        for replica in range(replicas):
            shard = np.arange(start + replica, start + BATCH, replicas)
            for samples in np.split(shard, np.cumsum(micro_batch_sizes(len(shard), MICRO_BATCHES))[:-1]):
                inputs, targets = ([tf.constant(part[samples]) for part in parts] for parts in (x, y))
                weight = tf.constant(len(samples) / len(shard), "float32")
                for part, gradient in zip(total, gradients_of(inputs, targets, weight), strict=True):
                    np.add(part, gradient.numpy() * np.float32(len(shard) / BATCH), out=part)
        model.optimizer.apply([tf.constant(part) for part in total], model.trainable_weights)


def state(model):
    """Return the number of steps, and the scale of the loss."""
    optimizer = model.optimizer
    scale = float(optimizer.dynamic_scale.numpy()) if precision == "mixed_float16" else 1.0
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return [int(inner.iterations.numpy()), scale]


model = compiled(hpcrun.train.Model(new_network(), stages=stages, micro_batches=MICRO_BATCHES))
model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0)
initial, expected = new_network().get_weights(), compiled(new_network())
train_in_one_loop(expected)
weights, expected_weights, initial = (
    np.concatenate([np.ravel(weight) for weight in values])
    for values in (model.get_weights(), expected.get_weights(), initial)
)
result = {
    "relative distance": float(np.linalg.norm(weights - expected_weights) / np.linalg.norm(expected_weights - initial)),
    "state": state(model),
    "expected state": state(expected),
}
print("RESULT", json.dumps(result), flush=True)
