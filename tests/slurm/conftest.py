"""A user of the test cluster."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.slurm.lab import Lab


@pytest.fixture
def lab(cluster: Cluster) -> Iterator[Lab]:
    """Yield a user of the cluster with accounting; their jobs end with the test."""
    yield from _user(cluster)


@pytest.fixture
def lab_without_accounting(cluster_without_accounting: Cluster) -> Iterator[Lab]:
    """Yield a user of the cluster without slurmdbd."""
    yield from _user(cluster_without_accounting)


@pytest.fixture
def lab_of_three(cluster_of_three: Cluster) -> Iterator[Lab]:
    """Yield a user of a cluster of three nodes."""
    yield from _user(cluster_of_three)


def _user(cluster: Cluster) -> Iterator[Lab]:
    home = Path(tempfile.mkdtemp(prefix="user", dir=cluster.shared))  # a cluster may see several runs of the tests
    user = Lab(cluster, home)
    yield user
    user.call("scancel", "--me")
    cluster.wait_idle()
