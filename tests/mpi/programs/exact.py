"""Train the same models on all ranks and in one process, and print how far apart they end."""

import json
import time

import hpcrun.train

hpcrun.train.init()

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

# (samples, batch size): even and uneven shares, last batches of 1, 2 and 3 samples, a batch smaller than the ranks
TABLE = [(64, 16), (50, 10), (23, 7), (17, 5), (11, 4), (9, 2), (3, 8)]
rank, size = hpcrun.train.rank(), hpcrun.train.size()


def data(samples):
    draw = np.random.default_rng(samples)
    x = draw.normal(size=(samples, 6)).astype("float32")
    return x, (x @ draw.normal(size=(6, 3))).argmax(1)


def network(seed):
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Dense(8, activation="tanh", kernel_regularizer="l2"), keras.layers.Dense(3)]
    return keras.Sequential([keras.Input((6,)), *layers])


def compiled(model, optimizer, **how):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"], **how)
    return model


def distance(model, reference):
    weights = np.concatenate([w.ravel() for w in model.get_weights()])
    others = hpcrun.train.allreduce(weights) / size
    return [float(np.abs(weights - np.concatenate([w.ravel() for w in reference.get_weights()])).max()),
            float(np.abs(weights - others).max())]  # fmt: skip


def case(samples, batch, optimizer, kind, **how):
    x, y = data(samples)
    reference, model = compiled(network(1), optimizer(), **how), hpcrun.train.Model(network(1 + 100 * rank))
    compiled(model, optimizer(), **how)
    expected = reference.fit(x, y, batch_size=batch, epochs=2, shuffle=False, verbose=0, validation_data=(x[:5], y[:5]))
    if rank > 0 or size == 1:  # the others start from rank 0's weights, whatever their own are
        model.set_weights(network(1 + 100 * rank).get_weights())
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch)
    given = {"x": batches} if kind == "tf.data" else {"x": x, "y": y, "batch_size": batch, "shuffle": False}
    held = tf.data.Dataset.from_tensor_slices((x[:5], y[:5])).batch(batch) if kind == "tf.data" else (x[:5], y[:5])
    found = model.fit(**given, epochs=2, verbose=0, validation_data=held)
    logs = max(abs(found.history[k][e] - v) for k, values in expected.history.items() for e, v in enumerate(values))
    return [*distance(model, reference), logs, len(found.history["loss"])]


def sgd():
    return keras.optimizers.SGD(0.1, momentum=0.9)


def adam():
    return keras.optimizers.Adam(0.01)


results, start = {}, time.perf_counter()
for samples, batch in TABLE:
    results[f"sgd numpy {samples}/{batch}"] = case(samples, batch, sgd, "numpy")
for samples, batch in TABLE[1:4]:
    results[f"adam tf.data {samples}/{batch}"] = case(samples, batch, adam, "tf.data")
results["steps_per_execution"] = case(50, 10, sgd, "numpy", steps_per_execution=3)
print("RESULT", json.dumps({"rank": rank, "cases": results, "seconds": time.perf_counter() - start}), flush=True)
