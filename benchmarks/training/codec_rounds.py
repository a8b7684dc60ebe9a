"""Benchmark of the allreduce of a network's gradients in each codec; rank 0 prints times and sent bytes.

Run the program with mpiexec; the arguments are the name of the network and the number of rounds. The program also
prints the parts of the cost model: the cost of each codec in a dry run on this rank, and the latency of a collective.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

import hpcrun.train

hpcrun.train.init()

import numpy as np  # noqa: E402

from hpcrun.train.gradients.codecs import CODECS  # noqa: E402
from hpcrun.train.gradients.cost_model import measure_codec  # noqa: E402
from hpcrun.train.gradients.reducer import Reducer  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
from network_shapes import draw_gradients  # type: ignore[import-not-found]  # noqa: E402

LATENCY_PROBES = 20


def bytes_sent() -> int:
    """Return the bytes that this host has sent to other hosts, from ``/proc/net/dev``."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    return sum(int(line.split(":")[1].split()[8]) for line in lines if not line.strip().startswith("lo:"))


def latency() -> float:
    """Return the median time of an allreduce of a single number, in s."""
    comm, times = hpcrun.train.comm(), []
    for _ in range(LATENCY_PROBES):
        start = time.perf_counter()
        comm.allreduce(0.0)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    """Measure each codec in each round, so that other load on the machine affects all codecs equally."""
    name, rounds = sys.argv[1], int(sys.argv[2])
    comm, gradients = hpcrun.train.comm(), draw_gradients(name, hpcrun.train.rank())
    reducers = {codec: Reducer(comm, None, allreduce(comm)) for codec, allreduce in CODECS.items()}
    found: dict[str, list[tuple[float, int]]] = {codec: [] for codec in CODECS}
    for _ in range(rounds + 1):
        for codec, reduce in reducers.items():
            comm.Barrier()
            start, sent = time.perf_counter(), bytes_sent()
            reduce(gradients, 1 / comm.size)
            comm.Barrier()
            found[codec].append((time.perf_counter() - start, bytes_sent() - sent))
    del reducers, reduce
    comm.Barrier()
    costs = {codec: measure_codec(allreduce, gradients, comm.size) for codec, allreduce in CODECS.items()}
    seconds_of_collective = latency()
    if comm.rank == 0:
        rows = {codec: list(map(statistics.median, zip(*steps[1:], strict=True))) for codec, steps in found.items()}
        numbers = sum(np.size(gradient) for gradient in gradients)
        print(json.dumps({"numbers": numbers, "codecs": rows, "costs": costs, "latency": seconds_of_collective}))
        sys.stdout.flush()


main()
