"""Train on all ranks and print the distance of each rank from the results of one process of plain Keras."""

import json
import sys

import numpy as np
import tensorflow as tf
from cases import CASES, compiled, data, logs, network, optimizers, restart, weights

import hpcrun.train
from hpcrun.train.data.tf_data import shard_dataset

hpcrun.train.init()
rank, size = hpcrun.train.rank(), hpcrun.train.size()
reference, distances = np.load(sys.argv[1]), {}


def distance(found, expected):
    return float(np.abs(np.asarray(found) - expected).max())


models = {name: compiled(hpcrun.train.Model(network()), optimizer) for name, optimizer in optimizers().items()}
for name, samples, batch in CASES:
    model, case, (x, y), validation = models[name], f"{name} {samples}/{batch}", data(samples), data(5)
    restart(model, seed=1 + 10 * rank)  # rank 0's weights are broadcast
    if samples % 2:
        given = {"x": x, "y": y, "batch_size": batch, "shuffle": False, "validation_data": validation}
    else:
        given = {"x": tf.data.Dataset.from_tensor_slices((x, y)).batch(batch)}
        given["validation_data"] = tf.data.Dataset.from_tensor_slices(validation).batch(2)
    history = model.fit(**given, epochs=2, verbose=0)
    local = weights(model)
    distances[f"{case} weights"] = distance(local, reference[f"{case} weights"])
    distances[f"{case} logs"] = distance(list(logs(history).values()), reference[f"{case} logs"])
    distances[f"{case} spread"] = distance(hpcrun.train.allreduce(local) / size, local)
    if samples % 2:
        found = model.evaluate(x, y, batch_size=batch)
        distances[f"{case} evaluate"] = distance(found, reference[f"{case} evaluate"])
        distances[f"{case} predict"] = distance(model.predict(x, batch_size=batch), reference[f"{case} predict"])

# The sharding itself: every sample once, the first B % p ranks one more, shares that add up to 1.
sharding_is_exact = True
for batch in range(1, 10):
    (part,) = shard_dataset(tf.data.Dataset.range(batch).batch(batch))
    indices = part.data.numpy() if part.share > 0 else part.data.numpy()[:0]
    sharding_is_exact &= len(indices) == batch // size + (rank < batch % size)
    sharding_is_exact &= abs(float(hpcrun.train.allreduce(part.share.numpy())) - 1) < 1e-6
    sharding_is_exact &= hpcrun.train.allreduce(np.bincount(indices, minlength=batch)).tolist() == [1] * batch

print("RESULT", json.dumps({"distances": distances, "sharded": bool(sharding_is_exact)}), flush=True)
