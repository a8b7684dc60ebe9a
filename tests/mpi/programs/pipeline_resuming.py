"""Train from the last checkpoint: pipeline_resuming.py FOLDER STAGES EPOCHS."""

import json
import sys

import keras
import numpy as np
from pipeline_cases import branches, crossentropy

import hpcrun.train

folder, stages, epochs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
hpcrun.train.init()
keras.utils.set_random_seed(5)
random = np.random.default_rng(0)
x = [random.normal(size=(40, size)).astype("float32") for size in (6, 4)]
y = [random.integers(0, 3, 40), random.normal(size=(40, 1)).astype("float32")]
model = hpcrun.train.Model(branches(), stages=stages, micro_batches=2)
model.compile(keras.optimizers.Adam(0.01), loss=[crossentropy(), "mse"])
history = model.fit(x, y, batch_size=8, epochs=epochs, verbose=0, checkpoint_dir=folder).history
weights = [weight.tolist() for weight in model.get_weights()]
print("RESULT", json.dumps({"weights": weights, "loss": history["loss"]}), flush=True)
