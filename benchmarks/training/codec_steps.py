"""Benchmark of training steps of a network in the codec of this job; rank 0 prints their times.

Run the program with mpiexec; the arguments are the name of the network, the images per rank and step, and the number of
steps.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

import hpcrun.train

hpcrun.train.init()

import keras  # noqa: E402
import numpy as np  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2] / "workloads" / "resnet50"))
import networks  # type: ignore[import-not-found]  # noqa: E402

CLASSES, PIXELS = 1000, 224
SKIPPED_STEPS = 2  # the first steps compile and touch new memory


class Stopwatch(keras.callbacks.Callback):
    """Times at which steps ended, in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:  # noqa: ARG002
        """Record the time."""
        self.ends.append(time.perf_counter())


def main() -> None:
    """Train for some steps."""
    name, images, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) + SKIPPED_STEPS
    keras.utils.set_random_seed(1)
    model = hpcrun.train.Model(networks.build(name, PIXELS, CLASSES))
    model.compile(keras.optimizers.SGD(1e-4, momentum=0.9), "sparse_categorical_crossentropy")
    batch, draw = images * hpcrun.train.size(), np.random.default_rng(0)
    x = draw.integers(256, size=(batch * steps, PIXELS, PIXELS, 3), dtype=np.uint8)  # (n, 224, 224, 3)
    y = draw.integers(CLASSES, size=len(x))  # (n,)
    stopwatch = Stopwatch()
    model.fit(hpcrun.train.dataset(x, y, batch_size=batch), verbose=0, callbacks=[stopwatch])
    if hpcrun.train.is_chief():
        ends = stopwatch.ends[SKIPPED_STEPS - 1 :]
        print(json.dumps({"median": statistics.median(np.diff(ends)), "all": ends[-1] - ends[0]}), flush=True)


main()
