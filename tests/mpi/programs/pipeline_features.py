"""Callbacks, saving and loading of a model with pipeline stages: pipeline_features.py FOLDER STAGES."""

import json
import sys
from pathlib import Path

import keras
import numpy as np
from pipeline_cases import chain, crossentropy

import hpcrun.train
from hpcrun.train.pipeline.absent import present

folder, stages = Path(sys.argv[1]), int(sys.argv[2])
hpcrun.train.init()
random = np.random.default_rng(0)
x, y = random.normal(size=(40, 6)).astype("float32"), random.integers(0, 3, 40)


class ReadWeights(keras.callbacks.Callback):
    """Callback that reads weights of all stages, and evaluates, on all ranks."""

    def on_train_begin(self, logs=None):
        self.sums, self.logs = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.sums.append(float(np.sum(self.model.layers[-1].kernel)))
        self.logs.append(logs["loss"])

    def on_epoch_end(self, epoch, logs=None):
        self.evaluation = self.model.evaluate(x, y, verbose=0, return_dict=True)


def new_model():
    keras.utils.set_random_seed(5)
    model = hpcrun.train.Model(chain(), stages=stages, micro_batches=2)
    model.compile(keras.optimizers.Adam(0.02), loss=crossentropy(), metrics=["accuracy"])
    return model


model = new_model()
reader = ReadWeights()
callbacks = [
    keras.callbacks.ModelCheckpoint(folder / "epoch{epoch}.keras"),
    keras.callbacks.CSVLogger(folder / "log.csv"),
    keras.callbacks.EarlyStopping("loss", patience=3, restore_best_weights=True),
    keras.callbacks.ReduceLROnPlateau("loss", patience=1),
    reader,
]
history = model.fit(x, y, batch_size=8, epochs=3, verbose=0, callbacks=callbacks).history
weights, prediction = model.get_weights(), model.predict(x)
model.save_weights(folder / "model.weights.h5")
hpcrun.train.barrier()

other = new_model()
other.load_weights(folder / "model.weights.h5")
third = new_model()
third.set_weights(weights if hpcrun.train.rank() == 0 else [np.zeros_like(weight) for weight in weights])
distances = [float(np.abs(m.predict(x) - prediction).max()) for m in (other, third)]

evaluations = [model.evaluate(x, y, verbose=0, **weighted) for weighted in ({}, {"sample_weight": np.ones(40)})]
other_structures = {
    "inputs in a list": float(np.abs(model.predict([x]) - prediction).max()),
    "samples with weights": float(np.abs(np.subtract(*evaluations)).max()),
}

steps = model.optimizer.iterations.numpy()
result = {
    "history": history,
    "sums": reader.sums,
    "batch losses": reader.logs,
    "evaluation": reader.evaluation,
    "distances": distances,
    "other structures": other_structures,
    "weights": [float(np.sum(weight)) for weight in weights],
    "present": len(present(model.variables)),
    "steps": int(steps),
}
if hpcrun.train.is_chief():  # the other ranks have reached the end of the script
    model.save(folder / "model.keras")
    whole = keras.models.load_model(folder / "model.keras")
    epoch = keras.models.load_model(folder / "epoch3.keras")
    result["saved"] = [float(np.abs(m.predict(x, verbose=0) - prediction).max()) for m in (whole, epoch)]
    result["saved steps"] = int(whole.optimizer.iterations.numpy())
    slots = [np.abs(variable.numpy()).max() > 0 for variable in whole.optimizer.variables[2:]]
    result["saved slots"] = [bool(np.all(slots)), len(slots)]
    (folder / "done").touch()
print("RESULT", json.dumps(result), flush=True)
