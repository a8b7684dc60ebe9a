"""Benchmark of each node and each pair of nodes, to find slow nodes and links.

Compute is the speed of products of 64 x 64 matrices of float64, which fit into the cache and for which NumPy uses one
thread. Memory is the speed of copies between two arrays that do not fit into the cache. Compute and memory are measured
on all ranks at the same time; the value of a node is the mean of its ranks. A copy of n bytes counts as 2n (read and
written), as in STREAM (https://www.cs.virginia.edu/stream/ref.html).

Pairs of nodes are measured by ping-pong between their first ranks: latency is half the round trip of 8 B, bandwidth is
computed from half the round trip of 1 MB. The pairs of a round have no node in common, and run at the same time. All
results are medians of medians: each measurement is repeated, so that short disturbances have no effect.
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

BUDGET_SECONDS, REPEATS = 0.1, 5  # seconds per measurement, and number of measurements
MAX_ROUNDS = 7  # maximum number of partners of a node; with up to eight nodes, each node is paired with all others
LATENCY_BYTES, BANDWIDTH_BYTES = 8, 2**20
COPY_BYTES_PER_NODE = 2**28  # bytes that all ranks of a node copy together
MIN_COPY_BYTES = 2**23
SYSFS = Path("/sys/class")


def describe_ranks(comm: Any) -> list[dict[str, Any]]:
    """Gather the description of every rank, in rank order."""
    description = {
        "rank": comm.rank,
        "size": comm.size,
        "host": platform.node(),
        "mpi": mpi_library(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "network": network(),
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }
    return list(comm.allgather(description))


def network(sysfs: Path = SYSFS) -> str:
    """Return this node's InfiniBand devices (Ethernet devices if there are none), with their rates if known."""
    ports = sorted(sysfs.glob("infiniband/*/ports/*/rate"))
    if ports:
        return ", ".join(f"{port.parts[-4]} {read_file(port).partition('(')[0].strip()}" for port in ports)
    network_cards = [device.parent for device in sorted(sysfs.glob("net/*/device"))]  # bridges have no device
    network_cards = [card for card in network_cards if read_file(card / "operstate") != "down"]
    speeds_by_card = {card.name: read_file(card / "speed") for card in network_cards}
    return ", ".join(f"{name} {speed} Mb/s" if speed.isdigit() else name for name, speed in speeds_by_card.items())


def read_file(file: Path) -> str:
    """Read a file of sysfs; return an empty string if it cannot be read, for example if a device is down."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def measure(comm: Any, hosts: list[str]) -> dict[str, Any]:
    """Measure all nodes and pairs of nodes. Collective.

    Args:
        comm: A communicator of all ranks.
        hosts: Host name of each rank, in rank order.

    Returns:
        ``nodes``: the values of each node, by name; ``pairs``: the values of each pair, with the names of its nodes.
    """
    names = list(dict.fromkeys(hosts))
    measurements = []
    for _ in range(REPEATS):
        comm.Barrier()
        gflops = measure_compute()
        comm.Barrier()
        measurements.append((gflops, measure_memory(hosts.count(hosts[comm.rank]))))
    medians = dict(zip(("compute_GFLOPS", "memory_GBps"), map(float, np.median(measurements, axis=0)), strict=True))
    gathered_medians = comm.allgather(medians)
    nodes = {}
    for name in names:
        medians_on_node = [values for host, values in zip(hosts, gathered_medians, strict=True) if host == name]
        node_means = {key: sum(values[key] for values in medians_on_node) / len(medians_on_node) for key in medians}
        nodes[name] = {"ranks": len(medians_on_node), **node_means}
    return {"nodes": nodes, "pairs": measure_pairs(comm, hosts, names)}


def measure_compute() -> float:
    """Return the speed of one thread in GFLOPS (10^9 floating-point operations per second)."""
    size, products = 64, 100
    left, right, out = np.full((size, size), 0.5), np.full((size, size), 0.5), np.empty((size, size))

    def work() -> None:
        for _ in range(products):
            np.matmul(left, right, out=out)

    return products * 2 * size**3 / median_seconds(work) / 1e9


def measure_memory(ranks_on_node: int) -> float:
    """Return this rank's memory bandwidth in GB/s, measured while all ranks on the node copy."""
    size = max(COPY_BYTES_PER_NODE // ranks_on_node // 2, MIN_COPY_BYTES)
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    return 2 * size / median_seconds(lambda: np.copyto(target, source)) / 1e9


def median_seconds(work: Callable[[], None]) -> float:
    """Repeat a function for `BUDGET_SECONDS`, and return the median time of a call in seconds."""
    work()
    times: list[float] = []
    while len(times) < 5 or sum(times) < BUDGET_SECONDS:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def measure_pairs(comm: Any, hosts: list[str], names: list[str]) -> list[dict[str, Any]]:
    """Measure latency and bandwidth between the first ranks of each pair of nodes. Collective."""
    leaders = [hosts.index(name) for name in names]
    times_by_pair: dict[tuple[int, int], list[tuple[float, float]]] = {}  # latency in us and bandwidth in GB/s, by pair
    for round_pairs in REPEATS * schedule_rounds(len(names)):
        for pair in round_pairs:
            ranks = [leaders[node] for node in pair]
            if comm.rank in ranks:
                is_first, partner = comm.rank == ranks[0], ranks[comm.rank == ranks[0]]
                times = [
                    ping_pong(comm, partner, size, is_sender=is_first) for size in (LATENCY_BYTES, BANDWIDTH_BYTES)
                ]
                if is_first:
                    times_by_pair.setdefault(pair, []).append((times[0] * 1e6, BANDWIDTH_BYTES / times[1] / 1e9))
        wait_for_all(comm)
    results = []
    for pair, repeats in times_by_pair.items():
        latency, bandwidth = map(float, np.median(repeats, axis=0))
        results.append({"nodes": [names[node] for node in pair], "latency_us": latency, "bandwidth_GBps": bandwidth})
    return [pair for results_of_rank in comm.allgather(results) for pair in results_of_rank]


def schedule_rounds(count: int) -> list[list[tuple[int, int]]]:
    """Return rounds of pairs in which each node has at most one partner per round (circle method).

    Args:
        count: Number of nodes; if it is odd, one node has no partner in each round.
    """
    positions: list[int | None] = [*range(count), *([None] if count % 2 else [])]
    rounds = []
    for _ in range(min(max(len(positions) - 1, 0), MAX_ROUNDS)):
        half_count = len(positions) // 2
        pairs = zip(positions[:half_count], reversed(positions[half_count:]), strict=True)
        rounds.append([(min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None])
        # keep the first node, and rotate all other nodes by one
        positions = [positions[0], positions[-1], *positions[1:-1]]
    return rounds


def ping_pong(comm: Any, partner_rank: int, size: int, *, is_sender: bool) -> float:
    """Measure half the median round trip of a message in seconds; both partners must call this."""
    message = np.zeros(size, np.uint8)

    def median_time(count: int) -> float:
        times = []
        for _ in range(count):
            start = time.perf_counter()
            if is_sender:
                comm.Send(message, partner_rank)
                comm.Recv(message, partner_rank)
            else:
                comm.Recv(message, partner_rank)
                comm.Send(message, partner_rank)
            times.append(time.perf_counter() - start)
        return float(np.median(times))

    warmup_seconds = median_time(3)
    count = min(max(int(BUDGET_SECONDS / warmup_seconds), 5), 1000) if is_sender else None
    if is_sender:
        comm.send(count, partner_rank)
    else:
        count = comm.recv(source=partner_rank)
    return median_time(count) / 2


def wait_for_all(comm: Any) -> None:
    """Wait for all ranks without keeping a core busy, because other ranks may still measure."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(0.001)


def format_tables(results: dict[str, Any]) -> str:
    """Format the results of `measure` as tables."""
    lines = [f"{'node':<20}  {'ranks':>5}  {'compute':>14}  {'memory':>12}   a rank"]
    for name, node in results["nodes"].items():
        lines.append(
            f"{name:<20}  {node['ranks']:>5}  {node['compute_GFLOPS']:>7.3g} GFLOPS  {node['memory_GBps']:>7.3g} GB/s"
        )
    if results["pairs"]:
        lines += ["", f"{'between nodes':<40}  {'latency':>10}  {'bandwidth':>12}"]
    for pair in results["pairs"]:
        names = " ".join(pair["nodes"])
        lines.append(f"{names:<40}  {pair['latency_us']:>7.3g} us  {pair['bandwidth_GBps']:>7.3g} GB/s")
    return "\n".join(lines) + "\n"
