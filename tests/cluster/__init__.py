"""A real Slurm of several hosts on one machine.

From the shell (`python -m tests.cluster --help` lists all commands):

    python -m tests.cluster install
    python -m tests.cluster up --nodes 2
    eval $(python -m tests.cluster env)
    srun --nodes=2 --gpus-per-node=4 hostname
    python -m tests.cluster down

In tests, use the fixtures of tests/conftest.py. In a program:

    with Cluster(Config("mine", nodes=4, accounting=False)) as cluster:
        cluster.call("srun", "--nodes=4", "hostname")
        cluster.crash("mine3")
"""

from tests.cluster.cluster import Cluster
from tests.cluster.config import Config
from tests.cluster.errors import ClusterError
from tests.cluster.install import unavailable_reason

__all__ = ["Cluster", "ClusterError", "Config", "unavailable_reason"]
