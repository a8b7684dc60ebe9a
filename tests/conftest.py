"""Fixtures that several folders of tests share."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster import Cluster, Config, missing


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
def running_cluster(name: str, *, accounting: bool, nodes: int = 2) -> Iterator[Cluster]:
    """Use the cluster that HPCRUN_CLUSTER names where it is such a one, else start one and end it afterwards."""
    if reason := missing():
        pytest.skip(f"real Slurm: {reason}")
    if "HPCRUN_CLUSTER" in os.environ:
        running = Cluster.attach(os.environ["HPCRUN_CLUSTER"])
        if running.config.accounting == accounting and running.config.nodes >= nodes:
            yield running
            return
    with Cluster(Config(name, accounting=accounting, nodes=nodes)) as running:
        yield running
