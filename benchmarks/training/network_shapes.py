"""Random gradients in the shapes of a network of the workload resnet50."""

from __future__ import annotations

import sys
from pathlib import Path

import keras
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "workloads" / "resnet50"))
import networks  # type: ignore[import-not-found]


def draw_gradients(name: str, seed: int) -> list[np.ndarray]:
    """Return random gradients of a network for images of 224 x 224 pixels in 1000 classes.

    Args:
        name: The name of the network; or `matrix`, a single layer of 2048 x 2048 numbers.
        seed: The seed.
    """
    if name == "matrix":
        shapes = [(2048, 2048)]
    else:
        with keras.StatelessScope(initialize_variables=False):  # drawing 138 million initial weights would take longer
            shapes = [variable.shape for variable in networks.build(name, 224, 1000).trainable_variables]
    draw = np.random.default_rng(seed)
    return [draw.standard_normal(shape, dtype=np.float32) * np.float32(1e-3) for shape in shapes]
