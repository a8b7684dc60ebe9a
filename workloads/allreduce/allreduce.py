"""MPI_Allreduce between the job's ranks: latency and bandwidth by message size.

For each size every rank holds that many bytes of numbers, and MPI_Allreduce with MPI_SUM leaves the sum on all of
them, in place and in host memory, as hpcrun.train does with gradients. An iteration is an untimed barrier and one timed
allreduce; its time is the MAXIMUM over the ranks, including mpi4py's call (below a microsecond). Minimum,
median and maximum are over the iterations. Both bandwidths come from the median, in 10^9 bytes a second:

    algorithm bandwidth = bytes / time
    bus bandwidth       = algorithm bandwidth * 2 (p - 1) / p, for p ranks

An allreduce moves at least 2 (p - 1) / p of its bytes in and out of each rank, so the bus bandwidth compares with what
a network can do, whatever p is (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md). Messages larger
than the piece size are also measured "in pieces", as hpcrun.train sends gradients: the limit for training.
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
from hpcrun.train.gradients.allreduce import PIECE_BYTES
from hpcrun.train.ranks.world import mpi_library, print_line

if TYPE_CHECKING:
    from collections.abc import Callable

BUDGET = 0.5  # seconds for the iterations of one size
KIB = 1024


def main() -> None:
    """Measure every size and print its row at once."""
    args = hpcrun.train.options(__file__)
    dtype = np.dtype(args.dtype)
    sizes = message_sizes(args.min_size, args.max_size, dtype)
    if args.iterations < 0:
        raise hpcrun.train.HpcrunError(f"--iterations={args.iterations} is negative", hint="0 chooses by size")
    comm = hpcrun.train.comm()  # MPI alone: TensorFlow would take longer to start than the benchmark
    if comm is None:
        hint = (
            "pip install 'hpcrun-slurm[train-gpu]' (without GPUs: [train-cpu]) into the Python environment of the job"
        )
        raise hpcrun.train.HpcrunError("mpi4py finds no MPI library", hint=hint)
    names = comm.allgather(os.uname().nodename)
    hosts = Counter(names)
    kilobytes = os.environ.get("HPCRUN_FUSION_THRESHOLD_KB")
    piece = int(kilobytes) * KIB if kilobytes else PIECE_BYTES
    print_on_chief = print_line if comm.rank == 0 else lambda _: None

    if args.nodes:
        import nodes  # beside this file

        write_json(comm, "ranks.json", nodes.describe_ranks(comm))
    print_on_chief(format_header(dtype, hosts, piece))
    buffer = allocate(sizes[-1], dtype)  # (largest message,)
    rows = []
    for size in sizes:
        numbers = buffer[: size // dtype.itemsize]
        row = {"bytes": size, **measure(comm, numbers, len(numbers), args.iterations), "in_pieces": None}
        if 0 < piece < size:
            row["in_pieces"] = measure(comm, numbers, max(piece // dtype.itemsize, 1), args.iterations)
        rows.append(row)
        print_on_chief(format_row(row))

    print_on_chief("")
    environment = {"mpi": mpi_library(), "ranks": comm.size, "ranks_on_host": hosts, "dtype": dtype.name}
    write_json(comm, "allreduce.json", {**environment, "piece_bytes": piece, "sizes": rows})
    if args.nodes:
        found = nodes.measure(comm, names)
        print_on_chief(nodes.format_tables(found))
        write_json(comm, "nodes.json", found)
    hpcrun.train.write_result(latency_us=rows[0]["median_us"], **peaks(rows))


def write_json(comm: Any, name: str, content: object) -> None:
    """Write a file of the run directory atomically, on rank 0."""
    if comm.rank == 0 and "HPCRUN_RUN_DIR" in os.environ:
        new = Path(os.environ["HPCRUN_RUN_DIR"], f".{name}.new")
        new.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        new.replace(new.with_name(name))


def allocate(size: int, dtype: np.dtype) -> np.ndarray:
    """Allocate zeros of a size in bytes."""
    try:
        numbers = np.empty(size // dtype.itemsize, dtype)
    except MemoryError:
        message = f"cannot allocate {format_size(size)} of memory for the largest message"
        raise hpcrun.train.HpcrunError(message, hint="--max-size 64M") from None
    numbers.fill(0)
    return numbers


def measure(comm: Any, numbers: np.ndarray, step: int, iterations: int) -> dict[str, Any]:
    """Check the sum of one size, warm up, and time it in messages of `step` numbers; return the row's values."""
    from mpi4py import MPI

    messages = [numbers[start : start + step] for start in range(0, len(numbers), step)]

    def reduce() -> None:
        for message in messages:
            comm.Allreduce(MPI.IN_PLACE, message)

    def time_iterations(count: int) -> np.ndarray:
        local = np.empty(count)  # (iterations,) seconds
        for i in range(count):
            comm.Barrier()
            start = time.perf_counter()
            reduce()
            local[i] = time.perf_counter() - start
        comm.Allreduce(MPI.IN_PLACE, local, MPI.MAX)  # the slowest rank counts
        return local

    check(comm, numbers, reduce)
    warm = time_iterations(20 if numbers.nbytes <= 64 * KIB else 3)
    count = iterations or min(max(int(BUDGET / np.median(warm)), 3), 1000)
    seconds = time_iterations(count)
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
    """Check the sums of whole numbers, exact in any order, and leave zeros, which stay zeros in later sums."""
    pattern = np.arange(2**16) % 251 + 1  # a prime, so that misplaced messages are detected
    weights = [rank % 7 + 1 for rank in range(comm.size)]
    blocks = [numbers[start : start + len(pattern)] for start in range(0, len(numbers), len(pattern))]
    for part in blocks:
        part[:] = pattern[: len(part)] * weights[comm.rank]
    reduce()
    wrong = sum(int(np.count_nonzero(part != pattern[: len(part)] * sum(weights))) for part in blocks)
    if wrong:
        raise hpcrun.train.HpcrunError(
            f"MPI_Allreduce of {format_size(numbers.nbytes)}: {wrong} of {len(numbers)} sums are wrong on this rank",
            hint="training with this MPI library would fail too: try another one, or another transport",
            exit_code=1,
        )
    numbers.fill(0)


def peaks(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the best bandwidths; an empty dict for one rank."""
    found = {f"peak_{name}": [row[name] for row in rows] for name in ("algbw_GBps", "busbw_GBps")}
    found["peak_busbw_in_pieces_GBps"] = [row["in_pieces"]["busbw_GBps"] for row in rows if row["in_pieces"]]
    return {name: max(values) for name, values in found.items() if values and values[0] is not None}


def message_sizes(smallest: str | None, largest: str, dtype: np.dtype) -> list[int]:
    """Return message sizes in bytes: the smallest, four times as much, and so on, and the largest."""
    first = parse_size("--min-size", smallest, dtype) if smallest else dtype.itemsize
    last = parse_size("--max-size", largest, dtype)
    if first > last:
        message = f"--min-size {smallest or first} is more than --max-size {largest}"
        raise hpcrun.train.HpcrunError(message, hint="--min-size 4 --max-size 256M measures all sizes between")
    sizes = [first]
    while sizes[-1] * 4 < last:
        sizes.append(sizes[-1] * 4)
    return [*sizes, last] if last > sizes[-1] else sizes


def parse_size(option: str, text: str, dtype: np.dtype) -> int:
    """Parse a size such as 64K to bytes."""
    found = re.fullmatch(r"(\d+) ?([kmg]?)(i?b)?", text.strip(), re.IGNORECASE)
    size = int(found[1]) * KIB ** " KMG".index(found[2].upper() or " ") if found else 0
    if size <= 0:
        raise hpcrun.train.HpcrunError(
            f"{option} {text!r} is not a size", hint="bytes, or with K, M or G: 4, 64K, 256M"
        )
    if size % dtype.itemsize:
        message = f"{option} {text} is not a multiple of {dtype.name} ({dtype.itemsize} B each)"
        raise hpcrun.train.HpcrunError(
            message, hint=f"{option} {max(round(size / dtype.itemsize), 1) * dtype.itemsize}"
        )
    return size


def format_header(dtype: np.dtype, hosts: Counter[str], piece: int) -> str:
    """Format the lines above the table."""
    names = ", ".join(list(hosts)[:8]) + (f" and {len(hosts) - 8} more" if len(hosts) > 8 else "")
    ranks_per_host = [str(count) for count in sorted(set(hosts.values()))]
    pieces = f"{format_size(piece)}, as hpcrun.train sends gradients" if piece else "none: one message per tensor"
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
        lines += ["A single rank has no communication: these are the costs of the call alone.", ""]
    lines += [
        f"{'':21}  {'time of one allreduce':^26}   {'bandwidth':^20}   {'in pieces':^19}".rstrip(),
        format_columns("size", "iterations", "min", "median", "max", "algorithm", "bus", "median", "bus"),
    ]
    return "\n".join(lines)


def format_row(row: dict[str, Any]) -> str:
    """Format a row of the table."""
    times = [format_time(row[name]) for name in ("min_us", "median_us", "max_us")]
    rates = [format_bandwidth(row[name]) for name in ("algbw_GBps", "busbw_GBps")]
    pieces = row["in_pieces"]
    split = [format_time(pieces["median_us"]), format_bandwidth(pieces["busbw_GBps"])] if pieces else ["-", "-"]
    return format_columns(format_size(row["bytes"]), str(row["iterations"]), *times, *rates, *split)


def format_columns(*cells: str) -> str:
    """Format the columns of a row."""
    size, iterations, low, median, high, algorithm, bus, split, split_bus = cells
    what = f"{size:>9}  {iterations:>10}"
    return f"{what}  {low:>8} {median:>8} {high:>8}   {algorithm:>9}  {bus:>9}   {split:>8}  {split_bus:>9}"


def format_size(size: int) -> str:
    """Format 65536 as 64 KB."""
    power = next((power for power in (3, 2, 1) if size % KIB**power == 0), 0)
    return f"{size // KIB**power} {('B', 'KB', 'MB', 'GB')[power]}"


def format_time(microseconds: float) -> str:
    """Format a time with three digits."""
    return format_with_unit(microseconds, {"us": 1, "ms": 1e3, "s ": 1e6})


def format_bandwidth(gigabytes: float | None) -> str:
    """Format a bandwidth with three digits, or a dash if nothing is sent."""
    return "-" if gigabytes is None else format_with_unit(gigabytes, {"kB/s": 1e-6, "MB/s": 1e-3, "GB/s": 1})


def format_with_unit(value: float, units: dict[str, float]) -> str:
    """Format a value in the first unit with at most three digits before the point."""
    unit = next((unit for unit, scale in units.items() if value < 999.5 * scale), list(units)[-1])
    value /= units[unit]
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"


main()
