"""Each node by itself, and the nodes two by two: which one is slower than the others?

Compute is a product of 64 x 64 matrices of float64, which stay in the cache and take NumPy one thread; memory is a copy
between two arrays that do not. Both are a rank's, measured while all ranks do the same, and a node's is the mean of its
ranks'. A copy of n bytes counts 2n, read and written, as STREAM counts (https://www.cs.virginia.edu/stream/ref.html).

Pairs are ping-pongs between the first ranks of two nodes: latency is half the round trip of 8 B, bandwidth comes from
half the round trip of 1 MB. Pairs of one round have no node in common, and go at the same time.
All figures are medians of medians: everything is measured several times in turn, so that what disturbs a node for a
moment does not count.
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

BUDGET, TURNS = 0.1, 5  # seconds for one figure, and how often it is measured
ROUNDS = 7  # so many partners has each node at most; up to eight nodes, all the others
LATENCY_BYTES, BANDWIDTH_BYTES = 8, 2**20
COPIED = 2**28  # bytes of a node's memory that its ranks copy together; at least LEAST a rank
LEAST = 2**23
SYS = Path("/sys/class")


def hello(comm: Any) -> list[dict[str, Any]]:
    """Return what every rank tells of itself, in rank order."""
    mine = {
        "rank": comm.rank,
        "size": comm.size,
        "host": platform.node(),
        "mpi": mpi_library(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "network": network(),
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }
    return list(comm.allgather(mine))


def network(sys: Path = SYS) -> str:
    """Return this node's network devices, with their rates where they tell them: InfiniBand's, else Ethernet's."""
    ports = sorted(sys.glob("infiniband/*/ports/*/rate"))
    if ports:
        return ", ".join(f"{port.parts[-4]} {read(port).partition('(')[0].strip()}" for port in ports)
    cards = [device.parent for device in sorted(sys.glob("net/*/device"))]  # bridges and the like are no devices
    cards = [card for card in cards if read(card / "operstate") != "down"]
    speeds = {card.name: read(card / "speed") for card in cards}
    return ", ".join(f"{name} {speed} Mb/s" if speed.isdigit() else name for name, speed in speeds.items())


def read(file: Path) -> str:
    """Return what a file of the kernel's says; a device that is down has nothing to say."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def measure(comm: Any, hosts: list[str]) -> dict[str, Any]:
    """Measure all nodes and pairs; every rank must call it.

    Args:
        comm: A communicator of all ranks.
        hosts: Each rank's host name, in rank order.

    Returns:
        On all ranks: ``nodes``, each with its figures, and ``pairs``, each with the two nodes' names.
    """
    names = list(dict.fromkeys(hosts))
    turns = []
    for _ in range(TURNS):
        comm.Barrier()
        gflops = compute()
        comm.Barrier()
        turns.append((gflops, memory(hosts.count(hosts[comm.rank]))))
    mine = dict(zip(("compute_GFLOPS", "memory_GBps"), map(float, np.median(turns, axis=0)), strict=True))
    everybody = comm.allgather(mine)
    nodes = {}
    for name in names:
        here = [figures for host, figures in zip(hosts, everybody, strict=True) if host == name]
        means = {key: sum(figures[key] for figures in here) / len(here) for key in mine}
        nodes[name] = {"ranks": len(here), **means}
    return {"nodes": nodes, "pairs": pairs(comm, hosts, names)}


def compute() -> float:
    """Return 10^9 floating-point operations a second of one thread."""
    size, products = 64, 100
    left, right, out = np.full((size, size), 0.5), np.full((size, size), 0.5), np.empty((size, size))

    def work() -> None:
        for _ in range(products):
            np.matmul(left, right, out=out)

    return products * 2 * size**3 / seconds(work) / 1e9


def memory(ranks_here: int) -> float:
    """Return 10^9 bytes a second that this rank reads and writes, while the others on its node do."""
    size = max(COPIED // ranks_here // 2, LEAST)
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    return 2 * size / seconds(lambda: np.copyto(target, source)) / 1e9


def seconds(work: Callable[[], None]) -> float:
    """Return the median time of what is done again and again for as long as the budget lasts."""
    work()
    times: list[float] = []
    while len(times) < 5 or sum(times) < BUDGET:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def pairs(comm: Any, hosts: list[str], names: list[str]) -> list[dict[str, Any]]:
    """Return the latency and bandwidth between the first ranks of nodes, two by two."""
    leaders = [hosts.index(name) for name in names]
    mine: dict[tuple[int, int], list[tuple[float, float]]] = {}  # by pair, of each turn
    for together in TURNS * rounds(len(names)):
        for pair in together:
            ranks = [leaders[node] for node in pair]
            if comm.rank in ranks:
                first, partner = comm.rank == ranks[0], ranks[comm.rank == ranks[0]]
                times = [ping_pong(comm, partner, size, first=first) for size in (LATENCY_BYTES, BANDWIDTH_BYTES)]
                if first:
                    mine.setdefault(pair, []).append((times[0] * 1e6, BANDWIDTH_BYTES / times[1] / 1e9))
        rest(comm)
    found = []
    for pair, turns in mine.items():
        latency, bandwidth = map(float, np.median(turns, axis=0))
        found.append({"nodes": [names[node] for node in pair], "latency_us": latency, "bandwidth_GBps": bandwidth})
    return [pair for each in comm.allgather(found) for pair in each]


def rounds(count: int) -> list[list[tuple[int, int]]]:
    """Return who meets whom, round by round, so that everybody has one partner in each (the circle method).

    Args:
        count: How many there are; where it is odd, one rests in each round.
    """
    seats: list[int | None] = [*range(count), *([None] if count % 2 else [])]
    found = []
    for _ in range(min(max(len(seats) - 1, 0), ROUNDS)):
        half = len(seats) // 2
        facing = zip(seats[:half], reversed(seats[half:]), strict=True)
        found.append([(min(a, b), max(a, b)) for a, b in facing if a is not None and b is not None])
        seats = [seats[0], seats[-1], *seats[1:-1]]  # the first stays, the others move on by one
    return found


def ping_pong(comm: Any, partner: int, size: int, *, first: bool) -> float:
    """Return half the median round trip of a message, in seconds; the partner calls this too."""
    message = np.zeros(size, np.uint8)

    def timed(count: int) -> float:
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

    warm = timed(3)
    count = min(max(int(BUDGET / warm), 5), 1000) if first else None
    if first:
        comm.send(count, partner)
    else:
        count = comm.recv(source=partner)
    return timed(count) / 2


def rest(comm: Any) -> None:
    """Wait for all ranks without keeping a core busy, which those that still measure may need."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(0.001)


def told(found: dict[str, Any]) -> str:
    """Return the figures as tables."""
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
