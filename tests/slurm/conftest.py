"""A user of the test cluster."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.conftest import running_cluster
from tests.slurm.lab import Lab


@pytest.fixture
def lab(cluster: Cluster) -> Iterator[Lab]:
    """Yield a user of the cluster with accounting; their jobs end with the test."""
    yield from user(cluster)


@pytest.fixture
def lab_without_accounting(cluster_without_accounting: Cluster) -> Iterator[Lab]:
    """Yield a user of the cluster without slurmdbd."""
    yield from user(cluster_without_accounting)


@pytest.fixture
def lab_of_three(cluster_of_three: Cluster) -> Iterator[Lab]:
    """Yield a user of a cluster of three nodes."""
    yield from user(cluster_of_three)


def user(cluster: Cluster) -> Iterator[Lab]:
    """Yield a user of a cluster; their jobs end with the test."""
    home = Path(tempfile.mkdtemp(prefix="user", dir=cluster.shared))  # a cluster may see several runs of the tests
    user = Lab(cluster, home)
    yield user
    user.call("scancel", "--me")
    cluster.wait_idle()


@pytest.fixture(scope="session")
def cluster_with_prolog() -> Iterator[Cluster]:
    """Yield a real Slurm of three nodes whose Prolog takes longer than a user waits for a program to start."""
    with running_cluster("w", accounting=False, nodes=3, prolog=20) as running:
        yield running


@pytest.fixture
def lab_with_prolog(cluster_with_prolog: Cluster) -> Iterator[Lab]:
    """Yield a user of the cluster with a Prolog."""
    yield from user(cluster_with_prolog)
