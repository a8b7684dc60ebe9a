"""A real Slurm of several hosts on one machine, for the tests: see `python -m tests.cluster --help`."""

from tests.cluster.cluster import Cluster
from tests.cluster.config import Config
from tests.cluster.errors import ClusterError
from tests.cluster.install import missing

__all__ = ["Cluster", "ClusterError", "Config", "missing"]
