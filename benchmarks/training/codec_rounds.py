"""Benchmark of the allreduce of a network's gradients in each codec; rank 0 prints times and sent bytes.

Run the program with mpiexec; the arguments are the name of the network and the number of rounds.
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

from hpcrun.train.gradients.codecs import CODECS  # noqa: E402
from hpcrun.train.gradients.reducer import Reducer  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2] / "workloads" / "resnet50"))
import networks  # type: ignore[import-not-found]  # noqa: E402


def bytes_sent() -> int:
    """Return the bytes that this host has sent to other hosts, from ``/proc/net/dev``."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    return sum(int(line.split(":")[1].split()[8]) for line in lines if not line.strip().startswith("lo:"))


def main() -> None:
    """Measure each codec in each round, so that other load on the machine affects all codecs equally."""
    name, rounds = sys.argv[1], int(sys.argv[2])
    with keras.StatelessScope(initialize_variables=False):  # drawing 138 million initial weights would take longer
        shapes = [variable.shape for variable in networks.build(name, 224, 1000).trainable_variables]
    comm, draw = hpcrun.train.comm(), np.random.default_rng(hpcrun.train.rank())
    gradients = [draw.standard_normal(shape, dtype=np.float32) * np.float32(1e-3) for shape in shapes]
    reducers = {codec: Reducer(comm, None, allreduce(comm)) for codec, allreduce in CODECS.items()}
    found: dict[str, list[tuple[float, int]]] = {codec: [] for codec in CODECS}
    for _ in range(rounds + 1):
        for codec, reduce in reducers.items():
            comm.Barrier()
            start, sent = time.perf_counter(), bytes_sent()
            reduce(gradients, 1 / comm.size)
            comm.Barrier()
            found[codec].append((time.perf_counter() - start, bytes_sent() - sent))
    if comm.rank == 0:
        rows = {codec: list(map(statistics.median, zip(*steps[1:], strict=True))) for codec, steps in found.items()}
        print(json.dumps({"numbers": sum(gradient.size for gradient in gradients), "codecs": rows}), flush=True)


main()
