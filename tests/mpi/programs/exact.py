"""Train on all ranks and print how far each rank ends from what one process of plain Keras found."""

import json
import sys

import numpy as np
import tensorflow as tf
from cases import CASES, compiled, data, logs, network, optimizers, restart, weights

import hpcrun.train
from hpcrun.train.data.tf_data import shard_dataset

hpcrun.train.init()
rank, size = hpcrun.train.rank(), hpcrun.train.size()
truth, far = np.load(sys.argv[1]), {}


def distance(found, expected):
    return float(np.abs(np.asarray(found) - expected).max())


models = {name: compiled(hpcrun.train.Model(network()), optimizer) for name, optimizer in optimizers().items()}
for name, samples, batch in CASES:
    model, case, (x, y), held = models[name], f"{name} {samples}/{batch}", data(samples), data(5)
    restart(model, seed=1 + 10 * rank)  # all others start from rank 0's weights, whatever their own are
    if samples % 2:
        given = {"x": x, "y": y, "batch_size": batch, "shuffle": False, "validation_data": held}
    else:
        given = {"x": tf.data.Dataset.from_tensor_slices((x, y)).batch(batch)}
        given["validation_data"] = tf.data.Dataset.from_tensor_slices(held).batch(2)
    history = model.fit(**given, epochs=2, verbose=0)
    mine = weights(model)
    far[f"{case} weights"] = distance(mine, truth[f"{case} weights"])
    far[f"{case} logs"] = distance(list(logs(history).values()), truth[f"{case} logs"])
    far[f"{case} spread"] = distance(hpcrun.train.allreduce(mine) / size, mine)
    if samples % 2:
        found = model.evaluate(x, y, batch_size=batch)
        far[f"{case} evaluate"] = distance(found, truth[f"{case} evaluate"])
        far[f"{case} predict"] = distance(model.predict(x, batch_size=batch), truth[f"{case} predict"])

# The deal itself: every sample once, the first B % p ranks one more, shares that add up to 1.
dealt = True
for batch in range(1, 10):
    (part,) = shard_dataset(tf.data.Dataset.range(batch).batch(batch))
    got = part.data.numpy() if part.share > 0 else part.data.numpy()[:0]
    dealt &= len(got) == batch // size + (rank < batch % size)
    dealt &= abs(float(hpcrun.train.allreduce(part.share.numpy())) - 1) < 1e-6
    dealt &= hpcrun.train.allreduce(np.bincount(got, minlength=batch)).tolist() == [1] * batch

print("RESULT", json.dumps({"far": far, "dealt": bool(dealt)}), flush=True)
