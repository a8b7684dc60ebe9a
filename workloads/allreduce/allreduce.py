"""MPI_Allreduce between the job's ranks: latency and bandwidth by message size.

For each message size, MPI_Allreduce with MPI_SUM sums an array of this size over all ranks, in place and in host
memory, as hpcrun.train does with gradients. An iteration is an untimed barrier and one timed allreduce; its time is the
MAXIMUM over the ranks, including the overhead of mpi4py (below a microsecond). A row gives minimum, median and maximum
over its iterations. Both bandwidths are computed from the median, in 10^9 bytes per second:

    algorithm bandwidth = bytes / time
    bus bandwidth       = algorithm bandwidth * 2 (p - 1) / p, for p ranks

An allreduce moves at least 2 (p - 1) / p of its bytes in and out of each rank, so the bus bandwidth can be compared
with the bandwidth of the network for every p (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
Messages larger than the chunk size are also measured "in chunks", because hpcrun.train sends gradients in chunks: this
bandwidth limits the speed of training.
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
from hpcrun.run.job import print_line
from hpcrun.train.gradients.allreduce import CHUNK_BYTES
from hpcrun.train.ranks.world import mpi_library

if TYPE_CHECKING:
    from collections.abc import Callable

BUDGET_SECONDS = 0.5  # time in seconds for the iterations of one message size
KIB = 1024


def main() -> None:
    """Measure all message sizes, and print each row as soon as it is measured."""
    args = hpcrun.train.options(__file__)
    dtype = np.dtype(args.dtype)
    sizes = message_sizes(args.min_size, args.max_size, dtype)
    if args.iterations < 0:
        raise hpcrun.train.HpcrunError(f"--iterations={args.iterations} is negative", hint="0 chooses by size")
    comm = hpcrun.train.comm()  # start MPI without TensorFlow, whose import would take longer than the benchmark
    if comm is None:
        hint = (
            "pip install 'hpcrun-slurm[train-gpu]' (without GPUs: [train-cpu]) into the Python environment of the job"
        )
        raise hpcrun.train.HpcrunError("mpi4py finds no MPI library", hint=hint)
    names = comm.allgather(os.uname().nodename)
    hosts = Counter(names)
    kilobytes = os.environ.get("HPCRUN_FUSION_THRESHOLD_KB")
    chunk_bytes = int(kilobytes) * KIB if kilobytes else CHUNK_BYTES
    print_on_chief = print_line if comm.rank == 0 else lambda _: None

    if args.nodes:
        import nodes  # the module in this folder

        write_json(comm, "ranks.json", nodes.describe_ranks(comm))
    print_on_chief(format_header(dtype, hosts, chunk_bytes))
    buffer = allocate(sizes[-1], dtype)  # (largest message,)
    rows = []
    for size in sizes:
        message = buffer[: size // dtype.itemsize]
        row = {"bytes": size, **measure(comm, message, len(message), args.iterations), "in_pieces": None}
        if 0 < chunk_bytes < size:
            row["in_pieces"] = measure(comm, message, max(chunk_bytes // dtype.itemsize, 1), args.iterations)
        rows.append(row)
        print_on_chief(format_row(row))

    print_on_chief("")
    environment = {"mpi": mpi_library(), "ranks": comm.size, "ranks_on_host": hosts, "dtype": dtype.name}
    write_json(comm, "allreduce.json", {**environment, "piece_bytes": chunk_bytes, "sizes": rows})
    if args.nodes:
        node_results = nodes.measure(comm, names)
        print_on_chief(nodes.format_tables(node_results))
        write_json(comm, "nodes.json", node_results)
    hpcrun.train.write_result(latency_us=rows[0]["median_us"], **peaks(rows))


def write_json(comm: Any, name: str, content: object) -> None:
    """Write a JSON file to the run directory atomically, on rank 0."""
    if comm.rank == 0 and "HPCRUN_RUN_DIR" in os.environ:
        temporary_file = Path(os.environ["HPCRUN_RUN_DIR"], f".{name}.new")
        temporary_file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        temporary_file.replace(temporary_file.with_name(name))


def allocate(size: int, dtype: np.dtype) -> np.ndarray:
    """Allocate an array of zeros, given its size in bytes."""
    try:
        array = np.empty(size // dtype.itemsize, dtype)
    except MemoryError:
        message = f"cannot allocate {format_size(size)} of memory for the largest message"
        raise hpcrun.train.HpcrunError(message, hint="--max-size 64M") from None
    array.fill(0)
    return array


def measure(comm: Any, send_buffer: np.ndarray, step: int, iterations: int) -> dict[str, Any]:
    """Check the sum of an array, warm up, and time the allreduce in messages of `step` values; return the row."""
    from mpi4py import MPI

    messages = [send_buffer[start : start + step] for start in range(0, len(send_buffer), step)]

    def allreduce() -> None:
        for message in messages:
            comm.Allreduce(MPI.IN_PLACE, message)

    def time_iterations(count: int) -> np.ndarray:
        seconds_of_rank = np.empty(count)  # (iterations,) seconds
        for i in range(count):
            comm.Barrier()
            start = time.perf_counter()
            allreduce()
            seconds_of_rank[i] = time.perf_counter() - start
        comm.Allreduce(MPI.IN_PLACE, seconds_of_rank, MPI.MAX)  # an iteration takes as long as on the slowest rank
        return seconds_of_rank

    check(comm, send_buffer, allreduce)
    warmup_seconds = time_iterations(20 if send_buffer.nbytes <= 64 * KIB else 3)
    count = iterations or min(max(int(BUDGET_SECONDS / np.median(warmup_seconds)), 3), 1000)
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
        row["algbw_GBps"] = send_buffer.nbytes / row["median_us"] / 1e3
        row["busbw_GBps"] = row["algbw_GBps"] * 2 * (comm.size - 1) / comm.size
    return row


def check(comm: Any, send_buffer: np.ndarray, allreduce: Callable[[], None]) -> None:
    """Check the allreduce with integers, whose sums are exact in any order; then fill the array with zeros."""
    pattern = np.arange(2**16) % 251 + 1  # the prime period of the values reveals misplaced messages
    weights = [rank % 7 + 1 for rank in range(comm.size)]
    blocks = [send_buffer[start : start + len(pattern)] for start in range(0, len(send_buffer), len(pattern))]
    for block in blocks:
        block[:] = pattern[: len(block)] * weights[comm.rank]
    allreduce()
    wrong_sums = sum(int(np.count_nonzero(block != pattern[: len(block)] * sum(weights))) for block in blocks)
    if wrong_sums:
        raise hpcrun.train.HpcrunError(
            f"MPI_Allreduce of {format_size(send_buffer.nbytes)}: {wrong_sums} of {len(send_buffer)} sums are wrong "
            "on this rank",
            hint="training with this MPI library would fail too: try another one, or another transport",
            exit_code=1,
        )
    send_buffer.fill(0)


def peaks(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the largest bandwidths; an empty dict for one rank."""
    bandwidths = {f"peak_{name}": [row[name] for row in rows] for name in ("algbw_GBps", "busbw_GBps")}
    bandwidths["peak_busbw_in_pieces_GBps"] = [row["in_pieces"]["busbw_GBps"] for row in rows if row["in_pieces"]]
    return {name: max(values) for name, values in bandwidths.items() if values and values[0] is not None}


def message_sizes(smallest_size: str | None, largest_size: str, dtype: np.dtype) -> list[int]:
    """Return message sizes in bytes, from the smallest to the largest, with a factor of at most four between sizes."""
    smallest_bytes = parse_size("--min-size", smallest_size, dtype) if smallest_size else dtype.itemsize
    largest_bytes = parse_size("--max-size", largest_size, dtype)
    if smallest_bytes > largest_bytes:
        message = f"--min-size {smallest_size or smallest_bytes} is more than --max-size {largest_size}"
        raise hpcrun.train.HpcrunError(message, hint="--min-size 4 --max-size 256M measures all sizes between")
    sizes = [smallest_bytes]
    while sizes[-1] * 4 < largest_bytes:
        sizes.append(sizes[-1] * 4)
    return [*sizes, largest_bytes] if largest_bytes > sizes[-1] else sizes


def parse_size(option: str, text: str, dtype: np.dtype) -> int:
    """Parse a size such as 64K; return bytes."""
    match = re.fullmatch(r"(\d+) ?([kmg]?)(i?b)?", text.strip(), re.IGNORECASE)
    size = int(match[1]) * KIB ** " KMG".index(match[2].upper() or " ") if match else 0
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


def format_header(dtype: np.dtype, hosts: Counter[str], chunk_bytes: int) -> str:
    """Format the lines before the rows of the table."""
    names = ", ".join(list(hosts)[:8]) + (f" and {len(hosts) - 8} more" if len(hosts) > 8 else "")
    ranks_per_host = [str(count) for count in sorted(set(hosts.values()))]
    chunk_text = (
        f"{format_size(chunk_bytes)}, as hpcrun.train sends gradients"
        if chunk_bytes
        else "none: one message per tensor"
    )
    lines = [
        f"MPI_Allreduce, sum of {dtype.name}, in place, in host memory",
        "",
        f"MPI library     {mpi_library()}",
        f"ranks           {hosts.total()}",
        f"hosts           {len(hosts)} ({names})",
        f"ranks per host  {' or '.join(ranks_per_host)}",
        f"chunk size      {chunk_text}",
        "",
    ]
    if hosts.total() == 1:
        lines += ["A single rank has no communication: these are the costs of the call alone.", ""]
    lines += [
        f"{'':21}  {'time of one allreduce':^26}   {'bandwidth':^20}   {'in chunks':^19}".rstrip(),
        format_columns("size", "iterations", "min", "median", "max", "algorithm", "bus", "median", "bus"),
    ]
    return "\n".join(lines)


def format_row(row: dict[str, Any]) -> str:
    """Format the row of a message size."""
    times = [format_time(row[name]) for name in ("min_us", "median_us", "max_us")]
    rates = [format_bandwidth(row[name]) for name in ("algbw_GBps", "busbw_GBps")]
    chunked = row["in_pieces"]
    chunk_cells = (
        [format_time(chunked["median_us"]), format_bandwidth(chunked["busbw_GBps"])] if chunked else ["-", "-"]
    )
    return format_columns(format_size(row["bytes"]), str(row["iterations"]), *times, *rates, *chunk_cells)


def format_columns(*cells: str) -> str:
    """Align the cells of a row in columns."""
    size, iterations, minimum, median, maximum, algorithm, bus, chunked_median, chunked_bus = cells
    first_cells = f"{size:>9}  {iterations:>10}"
    times = f"{minimum:>8} {median:>8} {maximum:>8}"
    return f"{first_cells}  {times}   {algorithm:>9}  {bus:>9}   {chunked_median:>8}  {chunked_bus:>9}"


def format_size(size: int) -> str:
    """Format a size in bytes, such as 65536 as 64 KB."""
    exponent = next((exponent for exponent in (3, 2, 1) if size % KIB**exponent == 0), 0)
    return f"{size // KIB**exponent} {('B', 'KB', 'MB', 'GB')[exponent]}"


def format_time(microseconds: float) -> str:
    """Format a time in microseconds with three digits and a unit."""
    return format_with_unit(microseconds, {"us": 1, "ms": 1e3, "s ": 1e6})


def format_bandwidth(gigabytes: float | None) -> str:
    """Format a bandwidth in GB/s with three digits and a unit; a dash for None (one rank)."""
    return "-" if gigabytes is None else format_with_unit(gigabytes, {"kB/s": 1e-6, "MB/s": 1e-3, "GB/s": 1})


def format_with_unit(value: float, units: dict[str, float]) -> str:
    """Format a value in the first unit with at most three digits before the decimal point."""
    unit = next((unit for unit, scale in units.items() if value < 999.5 * scale), list(units)[-1])
    value /= units[unit]
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"


main()
