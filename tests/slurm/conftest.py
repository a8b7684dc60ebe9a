"""A user of the test cluster."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.slurm.lab import Lab

_NUMBERS = itertools.count()


@pytest.fixture
def lab(cluster: Cluster) -> Iterator[Lab]:
    """Yield a user of the cluster with accounting; their jobs end with the test."""
    yield from _user(cluster)


@pytest.fixture
def lab_without_accounting(cluster_without_accounting: Cluster) -> Iterator[Lab]:
    """Yield a user of the cluster without slurmdbd."""
    yield from _user(cluster_without_accounting)


def _user(cluster: Cluster) -> Iterator[Lab]:
    home = Path(cluster.shared) / f"user{next(_NUMBERS)}"
    home.mkdir()
    user = Lab(cluster, home)
    yield user
    user.call("scancel", "--me")
    cluster.wait_idle()
