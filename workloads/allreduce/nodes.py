"""Benchmark of each node and each pair of nodes, to find slow ones.

Compute is a product of 64 x 64 matrices of float64, which fit into the cache and for which NumPy uses one thread;
memory is a copy between two arrays that do not fit. Both are measured per rank while all ranks run, and the value of a
node is the mean of its ranks. A copy of n bytes counts 2n, read and written, as in STREAM
(https://www.cs.virginia.edu/stream/ref.html).

Pairs are ping-pongs between the first ranks of two nodes: latency is half the round trip of 8 B, bandwidth comes from
half the round trip of 1 MB. Pairs of one round have no node in common, and run at the same time. All values are medians
of medians: each is measured several times in turn, so that short disturbances do not count.
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcrun.train.ranks.world import mpi_library

if TYPE_CHECKING:
    from collections.abc import Callable

BUDGET, REPEATS = 0.1, 5  # seconds per measurement, and number of measurements
MAX_ROUNDS = 7  # maximum partners per node; with up to eight nodes, all others
LATENCY_BYTES, BANDWIDTH_BYTES = 8, 2**20
COPY_BYTES_PER_NODE = 2**28  # copied by all ranks of a node together
MIN_COPY_BYTES = 2**23
SYS = Path("/sys/class")


def describe_ranks(comm: Any) -> list[dict[str, Any]]:
    """Gather the description of every rank, in rank order."""
    local = {
        "rank": comm.rank,
        "size": comm.size,
        "host": platform.node(),
        "mpi": mpi_library(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "network": network(),
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }
    return list(comm.allgather(local))


def network(sys: Path = SYS) -> str:
    """Return this node's network devices with their rates, if known: InfiniBand, else Ethernet."""
    ports = sorted(sys.glob("infiniband/*/ports/*/rate"))
    if ports:
        return ", ".join(f"{port.parts[-4]} {read_file(port).partition('(')[0].strip()}" for port in ports)
    cards = [device.parent for device in sorted(sys.glob("net/*/device"))]  # without bridges and other virtual ones
    cards = [card for card in cards if read_file(card / "operstate") != "down"]
    speeds = {card.name: read_file(card / "speed") for card in cards}
    return ", ".join(f"{name} {speed} Mb/s" if speed.isdigit() else name for name, speed in speeds.items())


def read_file(file: Path) -> str:
    """Read a file of sysfs; return an empty text if it cannot be read, as of a device that is down."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def measure(comm: Any, hosts: list[str]) -> dict[str, Any]:
    """Measure all nodes and pairs; every rank must call this.

    Args:
        comm: A communicator of all ranks.
        hosts: Each rank's host name, in rank order.

    Returns:
        On all ranks: ``nodes``, each with its values, and ``pairs``, each with the names of its two nodes.
    """
    names = list(dict.fromkeys(hosts))
    repeats = []
    for _ in range(REPEATS):
        comm.Barrier()
        gflops = measure_compute()
        comm.Barrier()
        repeats.append((gflops, measure_memory(hosts.count(hosts[comm.rank]))))
    local = dict(zip(("compute_GFLOPS", "memory_GBps"), map(float, np.median(repeats, axis=0)), strict=True))
    gathered = comm.allgather(local)
    nodes = {}
    for name in names:
        on_node = [figures for host, figures in zip(hosts, gathered, strict=True) if host == name]
        means = {key: sum(figures[key] for figures in on_node) / len(on_node) for key in local}
        nodes[name] = {"ranks": len(on_node), **means}
    return {"nodes": nodes, "pairs": measure_pairs(comm, hosts, names)}


def measure_compute() -> float:
    """Measure 10^9 floating-point operations per second of one thread."""
    size, products = 64, 100
    left, right, out = np.full((size, size), 0.5), np.full((size, size), 0.5), np.empty((size, size))

    def work() -> None:
        for _ in range(products):
            np.matmul(left, right, out=out)

    return products * 2 * size**3 / median_seconds(work) / 1e9


def measure_memory(ranks_on_node: int) -> float:
    """Measure 10^9 bytes per second that this rank reads and writes while the others on its node do the same."""
    size = max(COPY_BYTES_PER_NODE // ranks_on_node // 2, MIN_COPY_BYTES)
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    return 2 * size / median_seconds(lambda: np.copyto(target, source)) / 1e9


def median_seconds(work: Callable[[], None]) -> float:
    """Return the median time of a function that is repeated as long as the budget lasts."""
    work()
    times: list[float] = []
    while len(times) < 5 or sum(times) < BUDGET:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def measure_pairs(comm: Any, hosts: list[str], names: list[str]) -> list[dict[str, Any]]:
    """Measure the latency and bandwidth between the first ranks of pairs of nodes."""
    leaders = [hosts.index(name) for name in names]
    local: dict[tuple[int, int], list[tuple[float, float]]] = {}  # by pair, one per repeat
    for round_pairs in REPEATS * schedule_rounds(len(names)):
        for pair in round_pairs:
            ranks = [leaders[node] for node in pair]
            if comm.rank in ranks:
                first, partner = comm.rank == ranks[0], ranks[comm.rank == ranks[0]]
                times = [ping_pong(comm, partner, size, first=first) for size in (LATENCY_BYTES, BANDWIDTH_BYTES)]
                if first:
                    local.setdefault(pair, []).append((times[0] * 1e6, BANDWIDTH_BYTES / times[1] / 1e9))
        wait_for_all(comm)
    found = []
    for pair, repeats in local.items():
        latency, bandwidth = map(float, np.median(repeats, axis=0))
        found.append({"nodes": [names[node] for node in pair], "latency_us": latency, "bandwidth_GBps": bandwidth})
    return [pair for each in comm.allgather(found) for pair in each]


def schedule_rounds(count: int) -> list[list[tuple[int, int]]]:
    """Return pairs in rounds, so that everybody has one partner in each round (the circle method).

    Args:
        count: The number of participants; if it is odd, one rests in each round.
    """
    seats: list[int | None] = [*range(count), *([None] if count % 2 else [])]
    found = []
    for _ in range(min(max(len(seats) - 1, 0), MAX_ROUNDS)):
        half = len(seats) // 2
        pairs = zip(seats[:half], reversed(seats[half:]), strict=True)
        found.append([(min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None])
        seats = [seats[0], seats[-1], *seats[1:-1]]  # the first stays, the others rotate by one
    return found


def ping_pong(comm: Any, partner: int, size: int, *, first: bool) -> float:
    """Measure half the median round trip of a message, in seconds; the partner calls this too."""
    message = np.zeros(size, np.uint8)

    def median_time(count: int) -> float:
        times = []
        for _ in range(count):
            start = time.perf_counter()
            if first:
                comm.Send(message, partner)
                comm.Recv(message, partner)
            else:
                comm.Recv(message, partner)
                comm.Send(message, partner)
            times.append(time.perf_counter() - start)
        return float(np.median(times))

    warm = median_time(3)
    count = min(max(int(BUDGET / warm), 5), 1000) if first else None
    if first:
        comm.send(count, partner)
    else:
        count = comm.recv(source=partner)
    return median_time(count) / 2


def wait_for_all(comm: Any) -> None:
    """Wait for all ranks without keeping a core busy, which others may need for measurements."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(0.001)


def format_tables(found: dict[str, Any]) -> str:
    """Format the results as tables."""
    lines = [f"{'node':<20}  {'ranks':>5}  {'compute':>14}  {'memory':>12}   a rank"]
    for name, node in found["nodes"].items():
        lines.append(
            f"{name:<20}  {node['ranks']:>5}  {node['compute_GFLOPS']:>7.3g} GFLOPS  {node['memory_GBps']:>7.3g} GB/s"
        )
    if found["pairs"]:
        lines += ["", f"{'between nodes':<40}  {'latency':>10}  {'bandwidth':>12}"]
    for pair in found["pairs"]:
        names = " ".join(pair["nodes"])
        lines.append(f"{names:<40}  {pair['latency_us']:>7.3g} us  {pair['bandwidth_GBps']:>7.3g} GB/s")
    return "\n".join(lines) + "\n"
