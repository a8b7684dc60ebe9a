"""Build the networks of the workload resnet50, or train some of them on real images."""

# ruff: noqa: E402  (hpcrun.train.init() comes before Keras, as in every script)

import json
import sys
from pathlib import Path

import hpcrun.train

hpcrun.train.init()

import keras
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[3] / "workloads" / "resnet50"))
import networks  # type: ignore[import-not-found]  # in the folder above

LEARNING_RATES = {"vgg": 1e-4, "efficientnetv2": 1e-3}
"""Those with which a few steps lower the loss clearly; others take the published one."""

found = {}
if sys.argv[1] == "count":
    for arch in networks.ARCHITECTURES:
        with keras.StatelessScope(initialize_variables=False):  # to draw 600 million weights takes longer
            found[arch] = networks.build(arch, 224, 1000).count_params()
        keras.backend.clear_session()
else:
    from PIL import Image

    photos = [np.asarray(Image.open(file).resize((640, 426))) for file in sorted(Path(sys.argv[2]).glob("*.jpg"))]
    draw = np.random.default_rng(0)
    corners = [(draw.integers(298), draw.integers(512)) for _ in range(8)]
    for arch in sys.argv[3:]:
        family = arch.rstrip("0123456789").partition("-")[0]
        # In float32, batch normalization of few pixels amplifies the rounding errors by which 1 and 2 ranks differ;
        # in float64, they agree for several steps, but large networks take twice as long.
        keras.config.set_floatx("float64" if family == "mobilenet" else "float32")
        size = {"inception_v": 75, "alexnet": 64, "efficientnetv2": 64}.get(family, 32)
        crops = [photo[top : top + size, left : left + size] for photo in photos for top, left in corners]
        keras.utils.set_random_seed(1)
        network = networks.build(arch, size, 2, weight_decay=1e-4, synchronized=True)
        for layer in network.layers:
            if isinstance(layer, keras.layers.Dropout):
                layer.rate = 0.0  # ranks draw different random numbers
        model = hpcrun.train.Model(network)
        learning_rate = LEARNING_RATES.get(family, networks.ARCHITECTURES[arch].learning_rate / 16)  # for 16 images
        sgd = keras.optimizers.SGD(learning_rate, momentum=0.9)
        optimizer = keras.optimizers.Adam(learning_rate) if family == "vgg" else sgd  # SGD needs more steps
        loss = "sparse_categorical_crossentropy"
        model.compile(optimizer, loss, metrics=[loss], run_eagerly=True)  # tracing takes longer than a few eager steps
        steps = {"alexnet": 6, "vgg": 6, "mobilenet": 4, "efficientnetv2": 3}.get(family, 2)  # that lower the loss
        history = model.fit(np.stack(crops), np.repeat([0, 1], 8), batch_size=16, epochs=steps, verbose=0)
        found[arch] = {"loss": history.history["loss"], "without decay": history.history[loss]}
        keras.backend.clear_session()
print("RESULT", json.dumps(found), flush=True)
