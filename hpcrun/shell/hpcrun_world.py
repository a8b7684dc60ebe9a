"""Hooks that record whether rank 0 was connected to all ranks (`sitecustomize.py`).

They run at the end of a process, and when torch.distributed connects: its world is unknown after
`destroy_process_group()`, and processes that multiprocessing forks run no hook at their end. The record is the file
`met` in the run directory, or `alone` with the reason, if the world was smaller, or if the process trained a model or
used MPI (see `hpcrun_check_world` in `outcome.bash`). Works with any version of Python.
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
    alone = os.path.join(folder, "alone")
    if any(name in sys.modules for name in UNDETECTED_LIBRARIES) or -1 in sizes.values() or largest_size >= rank_count:
        write_private(os.path.join(folder, "met"))
    elif largest_size > 1:
        write_private(alone, "rank 0 was in a world of {} ranks, of {} in the job".format(largest_size, rank_count))
    elif torch_worlds_of_node:
        reason = "rank 0 was in a world of {} ranks on one of {} nodes"
        write_private(alone, reason.format(max(torch_worlds_of_node), count_nodes(folder)))
    elif sizes.get("MPI"):
        write_private(alone, "MPI_COMM_WORLD has one rank in each; see mpi.type in the site file")
    elif sizes.get("torch"):
        write_private(alone, "torch.distributed has one rank in each; let the script read WORLD_SIZE and RANK")
    elif any(name in sys.modules for name in TRAINING_MODULES) and not os.path.exists(alone):
        write_private(alone, "none joined MPI, torch.distributed, tf.distribute or jax.distributed")


def mpi_size():
    """Return the size of MPI_COMM_WORLD; None without mpi4py or before MPI_Init, -1 after MPI_Finalize."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized():
        return None
    return -1 if mpi.Is_finalized() else mpi.COMM_WORLD.Get_size()


torch_worlds = []  # type: ignore[var-annotated]  # the sizes of this process's worlds in torch.distributed
torch_worlds_of_node = []  # type: ignore[var-annotated]  # those whose ranks connect to localhost, in a job of several nodes


def observe_torch(module):
    """Let `torch.distributed.distributed_c10d` record each world when this process has joined it."""
    join_world = module._update_default_pg

    def hpcrun_join_world(group):
        join_world(group)
        try:
            if group is not None:
                record_torch_world(group.size(), find_store_host(module._world.pg_map[group][1]))
        except Exception:  # of another version of PyTorch
            pass

    module._update_default_pg = hpcrun_join_world


def record_torch_world(size, host):
    """Record the size of a world of torch.distributed, given the host through which its ranks find each other."""
    folder = os.environ["HPCRUN_RUN_DIR"]
    is_local = size > 1 and (host in ("localhost", "::1") or host.startswith("127."))
    (torch_worlds_of_node if is_local and count_nodes(folder) > 1 else torch_worlds).append(size)
    record_world(folder)


def find_store_host(store):
    """Return the host of a store of torch.distributed; empty for a store without a host, such as a file."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return getattr(store, "host", "")


def count_nodes(folder):
    """Return the number of hosts in the hostfile of a run directory; see `hpcrun_read_hosts` in `world.bash`."""
    with open(os.path.join(folder, "hostfile")) as file:
        return len({line.split()[0].split(":")[0] for line in file if line.strip()})


def torch_size():
    """Return the number of ranks in torch.distributed; None without it, -1 if unknown.

    If the hook did not see it connect, only the init method is known after destroy_process_group; for env://,
    WORLD_SIZE is then the number of ranks.
    """
    module = sys.modules.get("torch.distributed.distributed_c10d")
    if torch_worlds:
        return max(torch_worlds)
    if torch_worlds_of_node or module is None or not hasattr(module, "is_initialized"):
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
