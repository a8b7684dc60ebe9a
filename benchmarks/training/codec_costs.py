"""Dry runs of the codecs for many ranks, in one process; the program prints the cost of each codec.

The arguments are the name of a network, and numbers of ranks.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import hpcrun.train

hpcrun.train.init()

from hpcrun.train.gradients.codecs import CODECS  # noqa: E402
from hpcrun.train.gradients.cost_model import measure_codec  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
from network_shapes import draw_gradients  # type: ignore[import-not-found]  # noqa: E402

gradients = draw_gradients(sys.argv[1], 0)
costs = {
    ranks: {codec: measure_codec(allreduce, gradients, int(ranks)) for codec, allreduce in CODECS.items()}
    for ranks in sys.argv[2:]
}
print(json.dumps(costs), flush=True)
