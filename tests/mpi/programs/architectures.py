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
else:  # six steps with all images, in float64, in which 1 and 2 ranks agree to many digits
    from PIL import Image

    keras.config.set_floatx("float64")
    photos = [np.asarray(Image.open(file).resize((640, 426))) for file in sorted(Path(sys.argv[2]).glob("*.jpg"))]
    draw = np.random.default_rng(0)
    corners = [(draw.integers(298), draw.integers(512)) for _ in range(8)]
    for arch in sys.argv[3:]:
        family = arch.rstrip("0123456789").partition("-")[0]
        size = {"inception_v": 75, "alexnet": 64, "efficientnetv": 64}.get(family, 32)
        crops = [photo[top : top + size, left : left + size] for photo in photos for top, left in corners]
        keras.utils.set_random_seed(1)
        network = networks.build(arch, size, 2, weight_decay=1e-4, synchronized=True)
        for layer in network.layers:
            if isinstance(layer, keras.layers.Dropout):
                layer.rate = 0.0  # the random numbers of ranks differ
        model = hpcrun.train.Model(network)
        rate = {"vgg": 0.01, "alexnet": 0.01}.get(family, networks.ARCHITECTURES[arch].learning_rate / 16)
        model.compile(keras.optimizers.SGD(rate, momentum=0.9), "sparse_categorical_crossentropy")
        history = model.fit(np.stack(crops), np.repeat([0, 1], 8), batch_size=16, epochs=6, verbose=0)
        found[arch] = history.history["loss"]
        if len(sys.argv) > 4 and False: pass
        print("TIME", arch, __import__("time").process_time(), __import__("time").monotonic(), found[arch], flush=True)
        keras.backend.clear_session()
print("RESULT", json.dumps(found), flush=True)
