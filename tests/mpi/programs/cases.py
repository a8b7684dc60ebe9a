"""Small training runs of plain Keras and hpcrun.train."""

import keras
import numpy as np

# (samples, batch size): even and uneven shares, last batches of 1, 2 and 3 samples, fewer samples than ranks
TABLE = [(23, 7), (17, 5), (50, 10), (64, 16), (11, 4), (9, 2), (3, 8)]
CASES = [("sgd", *row) for row in TABLE] + [("adam", *row) for row in TABLE[:3]]


def data(samples):
    draw = np.random.default_rng(samples)
    x = draw.normal(size=(samples, 6)).astype("float32")  # (samples, 6)
    return x, (x @ np.random.default_rng(0).normal(size=(6, 3))).argmax(1)  # (samples,)


def network(seed=1):
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Dense(8, activation="tanh", kernel_regularizer="l2"), keras.layers.Dense(3)]
    return keras.Sequential([keras.Input((6,)), *layers])


def compiled(model, optimizer, **options):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    metrics = ["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2, name="top2")]
    model.compile(optimizer, loss, metrics=metrics, **options)
    return model


def optimizers():
    return {
        "sgd": keras.optimizers.SGD(0.1, momentum=0.9),
        "adam": keras.optimizers.Adam(0.01, global_clipnorm=0.5),
    }


def weights(model):
    return np.concatenate([w.ravel() for w in model.get_weights()])


def restart(model, seed=1):
    """Reset a model's weights and optimizer state, which is cheaper than compiling it again."""
    model.set_weights(network(seed).get_weights())
    for variable in model.optimizer.variables:
        if "learning_rate" not in variable.path:
            variable.assign(keras.ops.zeros_like(variable))


def logs(history):
    return dict(sorted(history.history.items()))
