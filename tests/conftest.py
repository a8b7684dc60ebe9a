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
    """Run the longest files first, alternating between tests/slurm, which waits, and tests/mpi, which computes."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    waiting, computing = ([file for file in files if HERE / folder in file.parents] for folder in ("slurm", "mpi"))
    alternating = [file for pair in zip_longest(waiting, computing) for file in pair if file]
    items[:] = [item for file in dict.fromkeys([*alternating, *files]) for item in files[file]]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Yield a real Slurm of two nodes with accounting; its nodes share `cluster.shared`, but not /tmp."""
    with running_cluster("t", accounting=True) as running:
        yield running


@pytest.fixture(scope="session")
def cluster_without_accounting() -> Iterator[Cluster]:
    """Yield a real Slurm of two nodes without slurmdbd."""
    with running_cluster("u", accounting=False) as running:
        yield running


@pytest.fixture(scope="session")
def cluster_of_three() -> Iterator[Cluster]:
    """Yield a real Slurm of three nodes without slurmdbd."""
    with running_cluster("v", accounting=False, nodes=3) as running:
        yield running


@contextmanager
def running_cluster(name: str, *, nodes: int = 2, **settings: Any) -> Iterator[Cluster]:
    """Use the cluster that HPCRUN_CLUSTER names if its configuration fits; otherwise start one and stop it afterwards.

    Each test process has its own clusters.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    config = Config(name + (chr(ord("a") + int(worker)) if worker else ""), nodes=nodes, **settings)
    if reason := unavailable_reason(config):
        pytest.skip(f"real Slurm: {reason}")
    if "HPCRUN_CLUSTER" in os.environ:
        running = Cluster.attach(os.environ["HPCRUN_CLUSTER"])
        flexible = ("name", "nodes", "gpus", "cpus", "real_memory", "shared_paths")
        same = {field: getattr(running.config, field) for field in flexible}
        if replace(config, **same) == running.config and running.config.nodes >= nodes:
            yield running
            return
    with Cluster(config) as running:
        yield running
