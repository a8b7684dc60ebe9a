"""Train replicas of 2 stages with a codec, once without and once with a restart: pipeline_codecs.py FOLDER STAGES."""

import hashlib
import json
import sys
from pathlib import Path

import keras
import numpy as np
from pipeline_cases import crossentropy

import hpcrun.train
from hpcrun.train.pipeline.absent import present

folder, stages = Path(sys.argv[1]), int(sys.argv[2])
hpcrun.train.init()
random = np.random.default_rng(0)
x, y = random.normal(size=(48, 32)).astype("float32"), random.integers(0, 3, 48)


def train(name, epochs, cut="layer1"):
    """Return the model and its loss after some epochs in all, of which a checkpoint may have some."""
    keras.utils.set_random_seed(5)
    layers = [keras.layers.Dense(64, activation="relu", name=f"layer{number}") for number in range(4)]
    network = keras.Sequential([keras.Input((32,)), *layers, keras.layers.Dense(3)])
    model = hpcrun.train.Model(network, stages=stages if stages == 1 else [cut], micro_batches=3)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), crossentropy())
    history = model.fit(x, y, batch_size=16, epochs=epochs, verbose=0, checkpoint_dir=folder / name).history
    return model, history["loss"][-1]


model, loss = train("whole", 4)
train("parts", 2)
resumed, _ = train("parts", 4)
train("other parts", 2, "layer2")
other, _ = train("other parts", 4)  # the stages have other layers after the restart


def distance(one, other):
    pairs = zip(one.get_weights(), other.get_weights(), strict=True)
    return float(max(np.abs(a - b).max() for a, b in pairs))


own = [np.asarray(variable.numpy()).tobytes() for variable in present(model.trainable_variables)]
result = {
    "own": hashlib.sha256(b"".join(own)).hexdigest(),
    "loss": loss,
    "weights": [weight.tolist() for weight in model.get_weights()],
    "after a restart": distance(model, resumed),
    "after another cut": distance(model, other),
    "codec state": sum(len(reducer.allreduce.state()) for reducer in model.training_state.reducers),
}
print("RESULT", json.dumps(result), flush=True)
