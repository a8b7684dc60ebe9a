"""Build the networks of the workload resnet50, or train one of each family on real images."""

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
    corners = [(draw.integers(298), draw.integers(512)) for _ in range(64)]
    for arch in sys.argv[3:]:
        # EfficientNetV2 needs more pixels and images: its batch normalization sees 1/1024 of the pixels of a batch
        is_efficient_net = arch.startswith("efficientnet")
        size = 75 if arch == "inception_v3" else 128 if is_efficient_net else 64
        count, batch_size = (64, 32) if is_efficient_net else (8, 16)
        crops = [photo[top : top + size, left : left + size] for photo in photos for top, left in corners[:count]]
        keras.utils.set_random_seed(1)
        network = networks.build(arch, size, 2, weight_decay=1e-4, synchronized=True)
        model = hpcrun.train.Model(network)
        rate = networks.ARCHITECTURES[arch].learning_rate * batch_size / 256
        model.compile(keras.optimizers.SGD(rate, momentum=0.9), "sparse_categorical_crossentropy")
        history = model.fit(np.stack(crops), np.repeat([0, 1], count), batch_size=batch_size, epochs=8, verbose=0)
        found[arch] = [history.history["loss"][0], min(history.history["loss"][-3:])]
        keras.backend.clear_session()
print("RESULT", json.dumps(found), flush=True)
