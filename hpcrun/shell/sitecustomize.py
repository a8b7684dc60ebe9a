"""Hooks in the Python processes of a job's ranks.

`rank.bash` puts this folder at the front of `PYTHONPATH`, so that each Python process of a rank imports this file when
it starts (https://docs.python.org/3/library/site.html). It imports nothing that the program does not import itself,
works with any version of Python, and afterwards imports the `sitecustomize` that it hides. At the end of a process it

- records whether rank 0 was in a world of all ranks: the file `met` in the run directory, or `alone` with the
  reason, if it was in a smaller one, trained a model or used MPI; `hpcrun_check_world` in `launch.bash` prints it;
- ends a process whose exit code is not 0 before `MPI_Finalize`, which waits for the other ranks, while these wait for
  this one: the launcher then ends them.

Programs that import `hpcrun.train` do both themselves. `jax.distributed.initialize()` also gets this job's ranks.
"""

import atexit
import os
import sys

TRAINING_MODULES = ("keras", "tf_keras", "tensorflow", "torch", "jax", "flax")
OTHER_WORLDS = ("horovod", "ray", "distributed", "oneccl_bindings_for_pytorch", "byteps", "mxnet")
"""Packages through which ranks may communicate in ways that this file does not know."""


def main():
    """Register the hooks."""
    if os.environ.get("JAX_NUM_PROCESSES") and sys.version_info >= (3, 7):
        sys.meta_path.insert(0, JaxFinder())
    sys.exit = make_exit_function(sys.exit)
    atexit.register(end_process)  # the first function that is registered is the last one that runs


def end_process():
    """Record the world, or leave it."""
    if "hpcrun.train" in sys.modules:
        return
    code = find_exit_code()
    if code:
        leave_world(code)
    elif os.environ.get("HPCRUN_RANK") == "0" and os.environ.get("HPCRUN_RUN_DIR"):
        try:
            record_world(os.environ["HPCRUN_RUN_DIR"])
        except Exception:  # of another version of a library; the program must not notice
            pass


# ---- The exit code ---------------------------------------------------------------------------------------------------
exit_codes = []  # type: ignore[var-annotated]  # of a SystemExit that nothing caught


class UncaughtExitCheck:
    """An attribute of a SystemExit, which is deleted with it: within a Python frame only if something caught it."""

    def __init__(self, code):
        self.code = code

    def __del__(self):
        try:
            sys._getframe(1)
        except ValueError:
            exit_codes.append(self.code)


def make_error(status):
    """Return a SystemExit with the check; no frame may keep a reference to it, which the check would wait for."""
    error = SystemExit(*(status if isinstance(status, tuple) else () if status is None else (status,)))
    error.hpcrun_check = UncaughtExitCheck(error.code)
    return error


def make_exit_function(python_exit):
    """Return a `sys.exit` that recognizes an exit that nothing caught."""

    def hpcrun_exit(status=None):
        raise make_error(status)

    hpcrun_exit.__doc__, hpcrun_exit.__module__ = python_exit.__doc__, "sys"
    hpcrun_exit.__name__ = hpcrun_exit.__qualname__ = "exit"  # it is pickled by this name
    return hpcrun_exit


def find_exit_code():
    """Return the exit code of this process; 0 if it is unknown."""
    trace = getattr(sys, "last_traceback", None)
    if trace and trace.tb_frame.f_back is None:  # an exception of the program itself, not of a function that C called
        return 130 if issubclass(sys.last_type, KeyboardInterrupt) else 1
    code = exit_codes[-1] if exit_codes else 0
    return code & 255 if isinstance(code, int) else int(code is not None)


def leave_world(code):
    """End this process with its exit code if MPI_Finalize might wait for the other ranks."""
    if (mpi_size() or 1) > 1:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (AttributeError, OSError, ValueError):
                pass
        os._exit(code)


# ---- The world -------------------------------------------------------------------------------------------------------
def record_world(folder):
    """Record in a run directory whether this process was in a world of all ranks."""
    sizes = {name: find_size() for name, find_size in WORLDS.items()}
    largest, ranks = max(size or 0 for size in sizes.values()), int(os.environ["HPCRUN_NTASKS"])
    if any(name in sys.modules for name in OTHER_WORLDS) or -1 in sizes.values() or largest >= ranks:
        touch(os.path.join(folder, "met"))
    elif largest > 1:
        text = "rank 0 was in a world of {} ranks, of {} in the job".format(largest, ranks)
        touch(os.path.join(folder, "alone"), text)
    elif sizes["MPI"]:
        touch(os.path.join(folder, "alone"), "MPI_COMM_WORLD has one rank in each; see mpi.type in the site file")
    elif any(name in sys.modules for name in TRAINING_MODULES):
        touch(os.path.join(folder, "alone"), "none joined MPI, torch.distributed, tf.distribute or jax.distributed")


def touch(path, text=""):
    """Write a text, if there is one, to a file that only its owner can read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(text)


def mpi_size():
    """Return the number of ranks in MPI; None without mpi4py or before MPI_Init, -1 after MPI_Finalize."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized():
        return None
    return -1 if mpi.Is_finalized() else mpi.COMM_WORLD.Get_size()


def torch_size():
    """Return the number of ranks in torch.distributed; None without it, -1 if nothing says it any more.

    After destroy_process_group only the method is known; env:// reads the number from WORLD_SIZE.
    """
    module = sys.modules.get("torch.distributed.distributed_c10d")
    if module is None or not hasattr(module, "is_initialized"):
        return None
    if module.is_initialized():
        return module.get_world_size()
    method = getattr(module, "_default_pg_init_method", None)
    return int(os.environ.get("WORLD_SIZE", "-1")) if method == "env://" else -1 if method else None


def tensorflow_size():
    """Return the number of tasks in the cluster of a tf.distribute strategy; None without one."""
    context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
    server = context and (context._collective_ops_server_def or context._server_def)
    return sum(len(job.tasks) for job in server.cluster.job) if server else None


def jax_size():
    """Return the number of processes in jax.distributed, also after its shutdown; None without it."""
    size = getattr(getattr(sys.modules.get("jax._src.distributed"), "global_state", None), "num_processes", None)
    return size if size != 1 else None


WORLDS = {"MPI": mpi_size, "torch": torch_size, "tensorflow": tensorflow_size, "jax": jax_size}


# ---- JAX -------------------------------------------------------------------------------------------------------------
class JaxFinder:
    """Adds this job to the clusters of `jax.distributed.initialize()`, in front of those that JAX recognizes.

    JAX reads the number of processes from srun's variables, which Hydra's ranks inherit from Hydra; elsewhere it finds
    none. It has no other way to register a cluster than a subclass of `ClusterEnv`.
    """

    def find_spec(self, name, path=None, target=None):
        """Find the package of JAX's clusters, which is to get one more."""
        if name != "jax._src.clusters":
            return None
        sys.meta_path.remove(self)
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module if spec and spec.loader else None

        def exec_module(module):
            run(module)
            try:
                add_jax_cluster(module.ClusterEnv)
            except Exception:  # of another version of JAX
                pass

        if run:
            spec.loader.exec_module = exec_module
        return spec


def add_jax_cluster(base):
    """Add the cluster of this job to JAX's."""

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


# ---- The file that this one hides ------------------------------------------------------------------------------------
def import_hidden():
    """Import the next sitecustomize on sys.path, and take this folder off the path."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != folder]
    own = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError as error:
        if "sitecustomize" not in str(error):
            raise
    finally:
        sys.modules.setdefault(__name__, own)


if __name__ == "sitecustomize":
    main()
    import_hidden()
