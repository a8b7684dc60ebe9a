"""Fixtures that several folders of tests share."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Cluster, Config, unavailable_reason

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files: tests/slurm, which waits, and tests/mpi, which computes, in turn."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    waiting, computing = ([file for file in files if HERE / folder in file.parents] for folder in ("slurm", "mpi"))
    in_turn = [file for pair in zip_longest(waiting, computing) for file in pair if file]
    items[:] = [item for file in dict.fromkeys([*in_turn, *files]) for item in files[file]]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Yield a real Slurm of two nodes with accounting; its nodes see `cluster.shared`, not this machine's /tmp."""
    with running_cluster("t", accounting=True) as running:
        yield running


@pytest.fixture(scope="session")
def cluster_without_accounting() -> Iterator[Cluster]:
    """Yield a real Slurm of two nodes without slurmdbd, as many clusters are."""
    with running_cluster("u", accounting=False) as running:
        yield running


@pytest.fixture(scope="session")
def cluster_of_three() -> Iterator[Cluster]:
    """Yield a real Slurm of three nodes without slurmdbd."""
    with running_cluster("v", accounting=False, nodes=3) as running:
        yield running


@contextmanager
def running_cluster(name: str, *, nodes: int = 2, **asked: Any) -> Iterator[Cluster]:
    """Use the cluster that HPCRUN_CLUSTER names where it is such a one, else start one and end it afterwards.

    Each process of the tests has its own.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    config = Config(name + (chr(ord("a") + int(worker)) if worker else ""), nodes=nodes, **asked)
    if reason := unavailable_reason(config):
        pytest.skip(f"real Slurm: {reason}")
    if "HPCRUN_CLUSTER" in os.environ:
        running = Cluster.attach(os.environ["HPCRUN_CLUSTER"])
        free = ("name", "nodes", "gpus", "cpus", "real_memory", "shared_paths")
        same = {field: getattr(running.config, field) for field in free}
        if replace(config, **same) == running.config and running.config.nodes >= nodes:
            yield running
            return
    with Cluster(config) as running:
        yield running
