"""Import hook with which `jax.distributed.initialize()` finds the ranks of this job, for `sitecustomize.py`."""

import os
import sys


class JaxFinder:
    """An import hook that adds this job to the clusters that `jax.distributed.initialize()` detects, as the first one.

    Without it, JAX reads a wrong number of processes from srun's variables, which Hydra's ranks inherit, or finds none.
    A cluster can only be registered by a subclass of `ClusterEnv`.
    """

    def find_spec(self, name, path=None, target=None):
        """Find the package `jax._src.clusters`, and add a cluster when it is imported."""
        if name != "jax._src.clusters":
            return None
        sys.meta_path.remove(self)
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        original_exec = spec.loader.exec_module if spec and spec.loader else None

        def exec_module(module):
            original_exec(module)
            try:
                add_jax_cluster(module.ClusterEnv)
            except Exception:  # of another version of JAX
                pass

        if original_exec:
            spec.loader.exec_module = exec_module
        return spec


def add_jax_cluster(base):
    """Add a cluster class for this job to the cluster classes of JAX."""

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
