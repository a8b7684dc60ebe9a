"""The files that the ranks of a site's benchmark (``workloads/allreduce``) write to the run directory."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hpcrun.frozen import frozen
from hpcrun.jobs import safe_reading
from hpcrun.jobs.record_validation import parse_record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpcrun.jobs.record_validation import Record
    from hpcrun.jobs.runs import Run


@frozen
class BenchmarkRank:
    """A rank of the benchmark and its host; unknown values are empty.

    Attributes:
        host: The host's name.
        mpi: The MPI library and its version.
        python: Python's version.
        kernel: The kernel's version.
        network: The network devices of the host.
    """

    host: str
    mpi: str
    python: str
    kernel: str
    network: str


@frozen
class BenchmarkRanks:
    """The ranks of the benchmark: the content of ``ranks.json``.

    Attributes:
        ranks: All ranks, in rank order.
    """

    ranks: Sequence[BenchmarkRank]


@frozen
class AllreduceTime:
    """The time of MPI_Allreduce for one message size.

    Attributes:
        median_us: The median time in microseconds.
        busbw_GBps: The bus bandwidth in 10^9 bytes per second; None or 0 with one rank.
    """

    median_us: float
    busbw_GBps: float | None  # noqa: N815


@frozen
class AllreduceTimes:
    """The times of MPI_Allreduce with all ranks: the content of ``allreduce.json``.

    Attributes:
        sizes: The time for each message size, in ascending order of size.
    """

    sizes: Sequence[AllreduceTime]


@frozen
class NodeSpeed:
    """The mean speed of a node's ranks.

    Attributes:
        compute_GFLOPS: Speed of computation in 10^9 floating-point operations per second.
        memory_GBps: Memory bandwidth in 10^9 bytes per second.
    """

    compute_GFLOPS: float  # noqa: N815
    memory_GBps: float  # noqa: N815


@frozen
class NodePair:
    """The speed of the network between two nodes.

    Attributes:
        nodes: The names of the two nodes.
        latency_us: The latency in microseconds.
        bandwidth_GBps: The bandwidth in 10^9 bytes per second.
    """

    nodes: Sequence[str]
    latency_us: float
    bandwidth_GBps: float  # noqa: N815


@frozen
class NodeSpeeds:
    """The speed of nodes and of the network between them: the content of ``nodes.json``.

    Attributes:
        nodes: The speed of each node, by node name.
        pairs: The speed of the network between pairs of nodes.
    """

    nodes: Mapping[str, NodeSpeed]
    pairs: Sequence[NodePair]


def read_ranks(run: Run) -> Sequence[BenchmarkRank]:
    """Return the ranks; empty before rank 0 has written ``ranks.json``."""
    with suppress(FileNotFoundError, safe_reading.BadRecordError, ValueError):
        value = safe_reading.parse_json(safe_reading.read_text(run.directory / "ranks.json"))
        return parse_record(BenchmarkRanks, {"ranks": value}).ranks
    return ()


def read_allreduce(run: Run) -> AllreduceTimes | None:
    """Return the times of MPI_Allreduce; None before rank 0 has written ``allreduce.json``."""
    times = _read_result_file(run, "allreduce.json", AllreduceTimes)
    return times if times and times.sizes else None


def read_nodes(run: Run) -> NodeSpeeds | None:
    """Return the speed of nodes; None before rank 0 has written ``nodes.json``."""
    node_speeds = _read_result_file(run, "nodes.json", NodeSpeeds)
    return node_speeds if node_speeds and node_speeds.nodes else None


def _read_result_file(run: Run, name: str, model: type[Record]) -> Record | None:
    with suppress(safe_reading.BadRecordError):
        return safe_reading.read_record(run.directory / name, model)
    return None
