"""MPI_Allreduce between the job's ranks: latency and bandwidth by message size.

For each size every rank holds that many bytes of numbers, and MPI_Allreduce with MPI_SUM leaves the sum on all of
them, in place and in host memory, as hpcrun.train reduces gradients. An iteration is a barrier, which is not timed, and
one allreduce, which is; its time is the MAXIMUM over the ranks, mpi4py's call (below a microsecond) included. Minimum,
median and maximum are over the iterations. Both bandwidths come from the median, in 10^9 bytes a second:

    algorithm bandwidth = bytes / time
    bus bandwidth       = algorithm bandwidth * 2 (p - 1) / p, for p ranks

An allreduce moves at least 2 (p - 1) / p of its bytes in and out of each rank, so the bus bandwidth compares with what
a network can do, whatever p is (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md). Messages larger
than the piece size are measured once more "in pieces", as hpcrun.train sends gradients: the limit for training.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import hpcrun.train
from hpcrun.train.gradients.wire_formats import PIECE_BYTES
from hpcrun.train.ranks.world import mpi_library, print_line

if TYPE_CHECKING:
    from collections.abc import Callable

BUDGET = 0.5  # seconds for the iterations of one size
KIB = 1024


def main() -> None:
    """Measure every size and print its line as soon as it is measured."""
    args = hpcrun.train.options(__file__)
    dtype = np.dtype(args.dtype)
    sizes = sizes_between(args.min_size, args.max_size, dtype)
    if args.iterations < 0:
        raise hpcrun.train.HpcrunError(f"--iterations={args.iterations}: less than none", hint="0 chooses by size")
    comm = hpcrun.train.comm()  # MPI alone: TensorFlow's start would take longer than all of this
    if comm is None:
        hint = (
            "pip install 'hpcrun-slurm[train-gpu]' (without GPUs: [train-cpu]) into the Python environment of the job"
        )
        raise hpcrun.train.HpcrunError("mpi4py finds no MPI library", hint=hint)
    names = comm.allgather(os.uname().nodename)
    hosts = Counter(names)
    kilobytes = os.environ.get("HPCRUN_FUSION_THRESHOLD_KB")
    piece = int(kilobytes) * KIB if kilobytes else PIECE_BYTES
    tell = print_line if comm.rank == 0 else lambda _: None

    if args.nodes:
        import nodes  # beside this file

        save(comm, "ranks.json", nodes.hello(comm))
    tell(header(dtype, hosts, piece))
    buffer = memory(sizes[-1], dtype)  # (largest message,)
    rows = []
    for size in sizes:
        numbers = buffer[: size // dtype.itemsize]
        row = {"bytes": size, **measure(comm, numbers, len(numbers), args.iterations), "in_pieces": None}
        if 0 < piece < size:
            row["in_pieces"] = measure(comm, numbers, max(piece // dtype.itemsize, 1), args.iterations)
        rows.append(row)
        tell(line(row))

    tell("")
    facts = {"mpi": mpi_library(), "ranks": comm.size, "ranks_on_host": hosts, "dtype": dtype.name}
    save(comm, "allreduce.json", {**facts, "piece_bytes": piece, "sizes": rows})
    if args.nodes:
        found = nodes.measure(comm, names)
        tell(nodes.told(found))
        save(comm, "nodes.json", found)
    hpcrun.train.write_result(latency_us=rows[0]["median_us"], **peaks(rows))


def save(comm: Any, name: str, content: object) -> None:
    """Write a file of the run directory, on rank 0, so that whoever waits for it never sees half of it."""
    if comm.rank == 0 and "HPCRUN_RUN_DIR" in os.environ:
        new = Path(os.environ["HPCRUN_RUN_DIR"], f".{name}.new")
        new.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        new.replace(new.with_name(name))


def memory(size: int, dtype: np.dtype) -> np.ndarray:
    """Return so many bytes of zeros, on pages of their own."""
    try:
        numbers = np.empty(size // dtype.itemsize, dtype)
    except MemoryError:
        message = f"there is no {size_text(size)} of memory for the largest message"
        raise hpcrun.train.HpcrunError(message, hint="--max-size 64M") from None
    numbers.fill(0)
    return numbers


def measure(comm: Any, numbers: np.ndarray, step: int, iterations: int) -> dict[str, Any]:
    """Check the sum of one size, warm up, and time it in messages of `step` numbers; return a row's figures."""
    from mpi4py import MPI

    messages = [numbers[start : start + step] for start in range(0, len(numbers), step)]

    def reduce() -> None:
        for message in messages:
            comm.Allreduce(MPI.IN_PLACE, message)

    def timed(count: int) -> np.ndarray:
        mine = np.empty(count)  # (iterations,) seconds
        for i in range(count):
            comm.Barrier()
            start = time.perf_counter()
            reduce()
            mine[i] = time.perf_counter() - start
        comm.Allreduce(MPI.IN_PLACE, mine, MPI.MAX)  # a rank that is done while others wait is not done
        return mine

    check(comm, numbers, reduce)
    warm = timed(20 if numbers.nbytes <= 64 * KIB else 3)
    count = iterations or min(max(int(BUDGET / np.median(warm)), 3), 1000)
    seconds = timed(count)
    row = {
        "iterations": count,
        "min_us": seconds.min() * 1e6,
        "median_us": float(np.median(seconds)) * 1e6,
        "max_us": seconds.max() * 1e6,
        "algbw_GBps": None,
        "busbw_GBps": None,
    }
    if comm.size > 1:
        row["algbw_GBps"] = numbers.nbytes / row["median_us"] / 1e3
        row["busbw_GBps"] = row["algbw_GBps"] * 2 * (comm.size - 1) / comm.size
    return row


def check(comm: Any, numbers: np.ndarray, reduce: Callable[[], None]) -> None:
    """Sum whole numbers, exact in any order, and leave zeros, which stay zeros however often they are summed."""
    pattern = np.arange(2**16) % 251 + 1  # a prime: a message that lands elsewhere is seen
    weights = [rank % 7 + 1 for rank in range(comm.size)]
    stretches = [numbers[start : start + len(pattern)] for start in range(0, len(numbers), len(pattern))]
    for part in stretches:
        part[:] = pattern[: len(part)] * weights[comm.rank]
    reduce()
    wrong = sum(int(np.count_nonzero(part != pattern[: len(part)] * sum(weights))) for part in stretches)
    if wrong:
        raise hpcrun.train.HpcrunError(
            f"MPI_Allreduce of {size_text(numbers.nbytes)}: {wrong} of {len(numbers)} sums are wrong on this rank",
            hint="training on this MPI library would go wrong too: try another one, or another transport of it",
            exit_code=1,
        )
    numbers.fill(0)


def peaks(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the best bandwidths; none for one rank."""
    found = {f"peak_{name}": [row[name] for row in rows] for name in ("algbw_GBps", "busbw_GBps")}
    found["peak_busbw_in_pieces_GBps"] = [row["in_pieces"]["busbw_GBps"] for row in rows if row["in_pieces"]]
    return {name: max(values) for name, values in found.items() if values and values[0] is not None}


def sizes_between(smallest: str | None, largest: str, dtype: np.dtype) -> list[int]:
    """Return message sizes in bytes: the smallest, four times as much, and so on, and the largest."""
    first = parsed("--min-size", smallest, dtype) if smallest else dtype.itemsize
    last = parsed("--max-size", largest, dtype)
    if first > last:
        message = f"--min-size {smallest or first} is more than --max-size {largest}"
        raise hpcrun.train.HpcrunError(message, hint="--min-size 4 --max-size 256M measures all that lies between")
    sizes = [first]
    while sizes[-1] * 4 < last:
        sizes.append(sizes[-1] * 4)
    return [*sizes, last] if last > sizes[-1] else sizes


def parsed(option: str, text: str, dtype: np.dtype) -> int:
    """Return a size such as 64K in bytes."""
    found = re.fullmatch(r"(\d+) ?([kmg]?)(i?b)?", text.strip(), re.IGNORECASE)
    size = int(found[1]) * KIB ** " KMG".index(found[2].upper() or " ") if found else 0
    if size <= 0:
        raise hpcrun.train.HpcrunError(f"{option} {text!r} is no size", hint="bytes, or with K, M or G: 4, 64K, 256M")
    if size % dtype.itemsize:
        message = f"{option} {text} is no whole number of {dtype.name} ({dtype.itemsize} B each)"
        raise hpcrun.train.HpcrunError(
            message, hint=f"{option} {max(round(size / dtype.itemsize), 1) * dtype.itemsize}"
        )
    return size


def header(dtype: np.dtype, hosts: Counter[str], piece: int) -> str:
    """Return what stands above the table."""
    names = ", ".join(list(hosts)[:8]) + (f" and {len(hosts) - 8} more" if len(hosts) > 8 else "")
    ranks_per_host = [str(count) for count in sorted(set(hosts.values()))]
    pieces = f"{size_text(piece)}, as hpcrun.train sends gradients" if piece else "none: a message for each tensor"
    lines = [
        f"MPI_Allreduce, sum of {dtype.name}, in place, in host memory",
        "",
        f"MPI library     {mpi_library()}",
        f"ranks           {hosts.total()}",
        f"hosts           {len(hosts)} ({names})",
        f"ranks per host  {' or '.join(ranks_per_host)}",
        f"piece size      {pieces}",
        "",
    ]
    if hosts.total() == 1:
        lines += ["One rank has nobody to reduce with: these are the costs of the call alone.", ""]
    lines += [
        f"{'':21}  {'time of one allreduce':^26}   {'bandwidth':^20}   {'in pieces':^19}".rstrip(),
        columns("size", "iterations", "min", "median", "max", "algorithm", "bus", "median", "bus"),
    ]
    return "\n".join(lines)


def line(row: dict[str, Any]) -> str:
    """Return a row as the table shows it."""
    times = [time_text(row[name]) for name in ("min_us", "median_us", "max_us")]
    rates = [rate_text(row[name]) for name in ("algbw_GBps", "busbw_GBps")]
    pieces = row["in_pieces"]
    split = [time_text(pieces["median_us"]), rate_text(pieces["busbw_GBps"])] if pieces else ["-", "-"]
    return columns(size_text(row["bytes"]), str(row["iterations"]), *times, *rates, *split)


def columns(*cells: str) -> str:
    """Return a line of the table."""
    size, iterations, low, median, high, algorithm, bus, split, split_bus = cells
    what = f"{size:>9}  {iterations:>10}"
    return f"{what}  {low:>8} {median:>8} {high:>8}   {algorithm:>9}  {bus:>9}   {split:>8}  {split_bus:>9}"


def size_text(size: int) -> str:
    """Return 65536 as 64 KB."""
    power = next((power for power in (3, 2, 1) if size % KIB**power == 0), 0)
    return f"{size // KIB**power} {('B', 'KB', 'MB', 'GB')[power]}"


def time_text(microseconds: float) -> str:
    """Return a time in three digits."""
    return scaled(microseconds, {"us": 1, "ms": 1e3, "s ": 1e6})


def rate_text(gigabytes: float | None) -> str:
    """Return a bandwidth in three digits, or a dash where nothing is sent."""
    return "-" if gigabytes is None else scaled(gigabytes, {"kB/s": 1e-6, "MB/s": 1e-3, "GB/s": 1})


def scaled(value: float, units: dict[str, float]) -> str:
    """Return a value in the first of its units that needs no more than three digits before the point."""
    unit = next((unit for unit, scale in units.items() if value < 999.5 * scale), list(units)[-1])
    value /= units[unit]
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"


main()
