"""Hook at the end of a process that records whether rank 0 was connected to all ranks (`sitecustomize.py`).

The record is the file `met` in the run directory, or `alone` with the reason, if its world was smaller, or if it
trained a model or used MPI (see `hpcrun_check_world` in `outcome.bash`). Works with any version of Python.
"""

import os
import sys

TRAINING_MODULES = ("keras", "tf_keras", "tensorflow", "torch", "jax", "flax")
UNDETECTED_LIBRARIES = ("horovod", "ray", "distributed", "oneccl_bindings_for_pytorch", "byteps", "mxnet")
"""Packages through which ranks may communicate in ways that this file cannot detect."""


def record_world(folder):
    """Record in a run directory whether this process was in a world of all ranks."""
    records_itself = "hpcrun.train" in sys.modules  # hpcrun.train records the size of MPI_COMM_WORLD itself
    sizes = {name: find_size() for name, find_size in WORLD_SIZES.items() if name != "MPI" or not records_itself}
    if records_itself and not any(sizes.values()):
        return
    largest_size, rank_count = max(size or 0 for size in sizes.values()), int(os.environ["HPCRUN_NTASKS"])
    if any(name in sys.modules for name in UNDETECTED_LIBRARIES) or -1 in sizes.values() or largest_size >= rank_count:
        write_private(os.path.join(folder, "met"))
    elif largest_size > 1:
        reason = "rank 0 was in a world of {} ranks, of {} in the job".format(largest_size, rank_count)
        write_private(os.path.join(folder, "alone"), reason)
    elif sizes.get("MPI"):
        write_private(
            os.path.join(folder, "alone"), "MPI_COMM_WORLD has one rank in each; see mpi.type in the site file"
        )
    elif any(name in sys.modules for name in TRAINING_MODULES):
        write_private(
            os.path.join(folder, "alone"), "none joined MPI, torch.distributed, tf.distribute or jax.distributed"
        )


def mpi_size():
    """Return the size of MPI_COMM_WORLD; None without mpi4py or before MPI_Init, -1 after MPI_Finalize."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized():
        return None
    return -1 if mpi.Is_finalized() else mpi.COMM_WORLD.Get_size()


def torch_size():
    """Return the number of ranks in torch.distributed; None without it, -1 if unknown.

    After destroy_process_group, only the init method is known; for env://, WORLD_SIZE is the number of ranks.
    """
    module = sys.modules.get("torch.distributed.distributed_c10d")
    if module is None or not hasattr(module, "is_initialized"):
        return None
    if module.is_initialized():
        return module.get_world_size()
    init_method = getattr(module, "_default_pg_init_method", None)
    return int(os.environ.get("WORLD_SIZE", "-1")) if init_method == "env://" else -1 if init_method else None


def tensorflow_size():
    """Return the number of tasks in the cluster of a tf.distribute strategy; None without a cluster."""
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    server_def = context and (context._collective_ops_server_def or context._server_def)
    return sum(len(job.tasks) for job in server_def.cluster.job) if server_def else None


def jax_size():
    """Return the number of processes in jax.distributed, even after its shutdown; None without it."""
    size = getattr(getattr(sys.modules.get("jax._src.distributed"), "global_state", None), "num_processes", None)
    return size if size != 1 else None


WORLD_SIZES = {"MPI": mpi_size, "torch": torch_size, "tensorflow": tensorflow_size, "jax": jax_size}


def write_private(path, text="", flag=os.O_TRUNC):
    """Write a file that only its owner can read; with `flag=os.O_APPEND`, append the text to it."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | flag, 0o600), "w") as file:
        file.write(text)
