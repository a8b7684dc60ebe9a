"""Cluster with which `jax.distributed.initialize()` finds the ranks of this job, for `sitecustomize.py`."""

import os


def add_jax_cluster(module):
    """Add this job to the clusters that `jax.distributed.initialize()` detects, as the first one.

    Without it, JAX reads a wrong number of processes from srun's variables, which Hydra's ranks inherit, or finds none.
    A cluster can only be registered by a subclass of `ClusterEnv`.

    Args:
        module: The module `jax._src.clusters`.
    """
    base = module.ClusterEnv

    class HpcrunCluster(base):
        name = "hpcrun"

        @classmethod
        def is_env_present(cls):
            return True

        @classmethod
        def get_coordinator_address(cls, *_, **__):
            return os.environ["JAX_COORDINATOR_ADDRESS"]

        @classmethod
        def get_process_count(cls):
            return int(os.environ["JAX_NUM_PROCESSES"])

        @classmethod
        def get_process_id(cls):
            return int(os.environ["JAX_PROCESS_ID"])

    base._cluster_types.remove(HpcrunCluster)
    base._cluster_types.insert(0, HpcrunCluster)
