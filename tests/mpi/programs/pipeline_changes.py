"""Change what is trained and measured between trainings of a model with pipeline stages: pipeline_changes.py STAGES."""

import json
import sys

import keras
import numpy as np
from pipeline_cases import crossentropy

import hpcrun.train

stages = int(sys.argv[1])
hpcrun.train.init()
random = np.random.default_rng(0)
x, y = random.normal(size=(32, 6)).astype("float32"), random.integers(0, 3, 32)
keras.utils.set_random_seed(5)
network = keras.Sequential(
    [
        keras.Input((6,)),
        keras.layers.Dense(8, activation="tanh", trainable=False),
        keras.layers.Dense(8, activation="tanh"),
        keras.layers.Dense(8, activation="tanh"),
        keras.layers.Dense(3),
    ]
)
model = hpcrun.train.Model(network, stages=stages, micro_batches=2)
replicas = hpcrun.train.size() // stages


def train(optimizer, metrics):
    """Compile and train; return the metrics of the last epoch."""
    model.compile(optimizer, crossentropy(), metrics=metrics)
    history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history
    return {name: values[-1] for name, values in history.items()}


model.compile("sgd", crossentropy(), metrics=["accuracy"])
share = slice(0, 8)  # the same samples on all replicas
batch = [model.train_on_batch(x[share], y[share]), model.test_on_batch(x[share], y[share])]
found = [train(keras.optimizers.Adam(0.01), ["accuracy"])]
model.layers[0].trainable, model.layers[1].trainable = True, False
optimizer = keras.optimizers.Adam(0.01)
found.append(train(optimizer, []))
model.layers[2].trainable = False
found.append(train(optimizer, ["accuracy", "sparse_top_k_categorical_accuracy"]))  # of fewer weights
kept = len(model.training_state.pipeline.service.variables) if stages > 1 else None
result = {
    "batch": [float(value) for values in batch for value in values],
    "logs": found,
    "weights": [float(np.abs(weight).sum()) for weight in model.get_weights()],
    "kept": kept,
    "expected": len(model.variables) + len(model.optimizer.variables),
}
print("RESULT", json.dumps(result), flush=True)
