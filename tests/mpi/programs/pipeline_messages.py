"""Exchange tensors of many dtypes and shapes between two stages, and print how they arrive, and as what."""

import json
import os

import numpy as np

import hpcrun.train

hpcrun.train.init()

import tensorflow as tf  # noqa: E402

from hpcrun.train.pipeline.layout import create_layout  # noqa: E402
from hpcrun.train.pipeline.messages import BACKWARD, FORWARD, Messages  # noqa: E402

DTYPES = ("float32", "float16", "bfloat16", "float64", "int32", "int64", "uint8", "bool")
SHAPES = ((3, 5), (), (0, 4), (70_000,))
MICRO_BATCHES = 3

layout = create_layout(2)


def make(dtype, number):
    return [tf.cast(tf.reshape(tf.range(np.prod(shape)) % 7 + number, shape), dtype) for shape in SHAPES]


found = {}
for switch in "01":
    os.environ["HPCRUN_CUDA_AWARE"] = switch
    messages, equal, types = Messages(layout), True, set()
    for dtype in DTYPES:
        for direction in (FORWARD, BACKWARD):
            if layout.stage == direction:
                for number in range(MICRO_BATCHES):
                    messages.send(direction, number, dtype, make(dtype, number))
            else:
                for number in range(MICRO_BATCHES):
                    tensors = messages.receive(direction, number, dtype)
                    types |= {type(tensor).__name__ for tensor in tensors}
                    for tensor, expected in zip(tensors, make(dtype, number), strict=True):
                        equal = equal and tensor.dtype == expected.dtype and tensor.shape == expected.shape
                        equal = equal and bool(tf.reduce_all(tf.equal(tensor, expected)))
            messages.finish()
    found[switch] = [equal, sorted(types)]
print("RESULT", json.dumps(found), flush=True)
