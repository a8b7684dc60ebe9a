"""Users of the test clusters."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.conftest import running_cluster
from tests.slurm.cluster_user import ClusterUser


@pytest.fixture
def user(cluster: Cluster) -> Iterator[ClusterUser]:
    """Yield a user of the cluster with accounting; cancel their jobs after the test."""
    yield from cluster_user(cluster)


@pytest.fixture
def user_without_accounting(cluster_without_accounting: Cluster) -> Iterator[ClusterUser]:
    """Yield a user of the cluster without slurmdbd."""
    yield from cluster_user(cluster_without_accounting)


@pytest.fixture
def user_of_three_nodes(cluster_of_three: Cluster) -> Iterator[ClusterUser]:
    """Yield a user of a cluster of three nodes."""
    yield from cluster_user(cluster_of_three)


def cluster_user(cluster: Cluster) -> Iterator[ClusterUser]:
    """Yield a user of a cluster; cancel their jobs after the test."""
    home = Path(tempfile.mkdtemp(prefix="user", dir=cluster.shared))  # several test runs may use one cluster
    user = ClusterUser(cluster, home)
    yield user
    user.call("scancel", "--me")
    cluster.wait_idle()


@pytest.fixture(scope="session")
def cluster_with_prolog() -> Iterator[Cluster]:
    """Yield a real Slurm of three nodes with a Prolog of 20 s."""
    with running_cluster("w", accounting=False, nodes=3, prolog=20) as running:
        yield running


@pytest.fixture
def user_with_prolog(cluster_with_prolog: Cluster) -> Iterator[ClusterUser]:
    """Yield a user of the cluster with a Prolog."""
    yield from cluster_user(cluster_with_prolog)
