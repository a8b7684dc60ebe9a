"""The files that the ranks of a site's benchmark leave in its run directory (``workloads/allreduce``)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcrun.jobs import records
from hpcrun.jobs.validation import parse_record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.validation import Record


@dataclass(frozen=True)
class BenchmarkRank:
    """One rank and its host; a text is empty if the value is unknown.

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


@dataclass(frozen=True)
class BenchmarkRanks:
    """The ranks, ``ranks.json``.

    Attributes:
        ranks: All ranks, in order.
    """

    ranks: Sequence[BenchmarkRank]


@dataclass(frozen=True)
class AllreduceTime:
    """MPI_Allreduce of one message size.

    Attributes:
        median_us: The median time in microseconds.
        busbw_GBps: The bus bandwidth in 10^9 bytes per second; None or 0 with one rank.
    """

    median_us: float
    busbw_GBps: float | None  # noqa: N815


@dataclass(frozen=True)
class AllreduceTimes:
    """MPI_Allreduce of all ranks, ``allreduce.json``.

    Attributes:
        sizes: The times, the smallest message first.
    """

    sizes: Sequence[AllreduceTime]


@dataclass(frozen=True)
class NodeSpeed:
    """The mean speed of the ranks of a node.

    Attributes:
        compute_GFLOPS: 10^9 floating-point operations per second.
        memory_GBps: 10^9 bytes per second.
    """

    compute_GFLOPS: float  # noqa: N815
    memory_GBps: float  # noqa: N815


@dataclass(frozen=True)
class NodePair:
    """The network between two nodes.

    Attributes:
        nodes: Their names.
        latency_us: The latency in microseconds.
        bandwidth_GBps: The bandwidth in 10^9 bytes per second.
    """

    nodes: Sequence[str]
    latency_us: float
    bandwidth_GBps: float  # noqa: N815


@dataclass(frozen=True)
class NodeSpeeds:
    """The speed of nodes and of the network between them, ``nodes.json``.

    Attributes:
        nodes: The nodes, by name.
        pairs: Pairs of nodes.
    """

    nodes: Mapping[str, NodeSpeed]
    pairs: Sequence[NodePair]


def read_ranks(run: Run) -> Sequence[BenchmarkRank]:
    """Return the ranks; empty before rank 0 has written them."""
    with suppress(FileNotFoundError, records.BadRecordError, ValueError):
        value = records.parse_json(records.read_text(run.directory / "ranks.json"))
        return parse_record(BenchmarkRanks, {"ranks": value}).ranks
    return ()


def read_allreduce(run: Run) -> AllreduceTimes | None:
    """Return the times of MPI_Allreduce; None before rank 0 has written them."""
    found = _read(run, "allreduce.json", AllreduceTimes)
    return found if found and found.sizes else None


def read_nodes(run: Run) -> NodeSpeeds | None:
    """Return the speed of nodes; None before rank 0 has written it."""
    found = _read(run, "nodes.json", NodeSpeeds)
    return found if found and found.nodes else None


def _read(run: Run, name: str, model: type[Record]) -> Record | None:
    with suppress(records.BadRecordError):
        return records.read_record(run.directory / name, model)
    return None
