"""Models and trainings that pipeline stages must compute as one process does."""

from typing import Any

import keras
import numpy as np

layers, optimizers = keras.layers, keras.optimizers
SAMPLES, BATCH, EPOCHS = 50, 16, 2  # the last batch has 2 samples


def branches():
    """Return a model with several inputs and outputs, skip connections, shared and nested layers, and regularizers."""
    l2 = keras.regularizers.L2(0.01)
    first, second = keras.Input((6,), name="first"), keras.Input((4,), name="second")
    left = layers.Dense(16, activation="relu", kernel_regularizer=l2)(first)
    right = layers.Dense(16, activation="tanh")(second)
    early = layers.Dense(16)(left)
    joined = layers.Add()([early, right, left])
    block = keras.Sequential([layers.Dense(16, activation="relu"), layers.LayerNormalization(), layers.Dense(16)])
    shared = layers.Dense(16, activation="tanh")
    last = shared(shared(block(joined) + joined))
    classes = layers.Dense(3, kernel_regularizer=l2, name="classes")(last)
    return keras.Model([first, second], [classes, layers.Dense(1, name="number")(early)])


def chain(activity=0.0):
    """Return a plain model, with a frozen layer first."""
    return keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(12, activation="relu", trainable=False),
            layers.Dense(12, activation="relu", activity_regularizer=keras.regularizers.L2(activity)),
            layers.Dense(12, activation="tanh", bias_constraint=keras.constraints.NonNeg()),
            layers.Dense(12, activation="relu"),
            layers.Dense(3),
        ]
    )


def words():
    """Return a small language model: embeddings, attention, the loss of every token."""
    tokens = keras.Input((5,), dtype="int32")
    x = layers.Embedding(20, 8)(tokens)
    for _ in range(2):
        y = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(2, 4)(y, y, use_causal_mask=True)
        x = x + layers.Dense(8)(layers.Dense(16, activation="gelu")(layers.LayerNormalization()(x)))
    return keras.Model(tokens, layers.Dense(20)(x))


def crossentropy(reduction="sum_over_batch_size"):
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction)


def scaled(scale):
    return optimizers.LossScaleOptimizer(optimizers.SGD(0.05, momentum=0.9), initial_scale=scale)


def two_outputs(optimizer):
    losses = {"loss": [crossentropy(), "mse"], "metrics": [["accuracy"], ["mae"]], "loss_weights": [1.0, 0.5]}
    return lambda: (branches(), optimizer(), losses)


def one_output(optimizer, **losses):
    return lambda: (chain(), optimizer(), {"loss": crossentropy(), "metrics": ["accuracy"]} | losses)


CASES = {
    "SGD": two_outputs(lambda: optimizers.SGD(0.1)),
    "momentum": two_outputs(lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True)),
    "Adam": two_outputs(lambda: optimizers.Adam(0.01)),
    "clipping by the global norm": two_outputs(lambda: optimizers.Adam(0.01, global_clipnorm=0.05)),
    "AdamW and a schedule": two_outputs(
        lambda: optimizers.AdamW(optimizers.schedules.CosineDecay(0.01, 6), weight_decay=0.1)
    ),
    "Nadam": one_output(lambda: optimizers.Nadam(0.01, clipnorm=0.5)),
    "Adafactor": one_output(lambda: optimizers.Adafactor(0.01)),
    "sum": one_output(lambda: optimizers.SGD(0.01), loss=crossentropy("sum")),
    "sample weights": one_output(lambda: optimizers.Adam(0.01), weighted_metrics=["accuracy"]),
    "activity": lambda: (chain(0.1), optimizers.SGD(0.1), {"loss": crossentropy()}),
    "loss scale": one_output(lambda: scaled(1024.0)),
    "overflow": one_output(lambda: scaled(3e38)),  # both epochs skip steps until the scale is low enough
    # The gradients of attention's key biases are 0, and Adam would divide their rounding errors by a smaller epsilon.
    "words": lambda: (words(), optimizers.Adam(0.01, epsilon=1e-3), {"loss": crossentropy(), "metrics": ["accuracy"]}),
    "clipped words": lambda: (
        words(),
        optimizers.Adam(0.01, epsilon=1e-3, global_clipnorm=0.5),
        {"loss": crossentropy()},
    ),
}


def make(case, build):
    """Return the model of a case, its optimizer, the arguments of compile, and the data.

    Args:
        case: Name of the case.
        build: Function that calls the function that builds the model.
    """
    keras.utils.set_random_seed(3)
    model, optimizer, compiled = build(CASES[case])
    random = np.random.default_rng(0)
    x: Any
    y: Any
    if "words" in case:
        x = random.integers(0, 20, (SAMPLES, 5))
        y = random.integers(0, 20, (SAMPLES, 5))
    elif len(model.inputs) > 1:
        x = [random.normal(size=(SAMPLES, size)).astype("float32") for size in (6, 4)]
        y = [random.integers(0, 3, SAMPLES), random.normal(size=(SAMPLES, 1)).astype("float32")]
    else:
        x = random.normal(size=(SAMPLES, 6)).astype("float32")
        y = random.integers(0, 3, SAMPLES)
    weights = random.uniform(0.5, 2, SAMPLES).astype("float32") if case == "sample weights" else None
    return model, optimizer, compiled, (x, y, weights)


def run(model, data):
    """Train, evaluate and predict; return the weights, the predictions and the logs."""
    x, y, weights = data
    history = model.fit(
        x, y, sample_weight=weights, batch_size=BATCH, epochs=EPOCHS, verbose=0, validation_data=(x, y, weights)
    ).history
    evaluation = model.evaluate(x, y, sample_weight=weights, batch_size=20, verbose=0, return_dict=True)
    logs = {name: values[-1] for name, values in history.items()} | {f"test {k}": v for k, v in evaluation.items()}
    predictions = model.predict(x, batch_size=BATCH, verbose=0)
    arrays = [*model.get_weights(), *(predictions if isinstance(predictions, list) else [predictions])]
    return arrays, logs
