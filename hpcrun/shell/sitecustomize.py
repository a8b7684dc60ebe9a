"""Hooks in all Python processes of a job's ranks.

`rank.bash` puts this folder at the front of `PYTHONPATH`, so that each Python process of a rank imports this file when
it starts (https://docs.python.org/3/library/site.html). It imports no module that the program does not import itself,
works with any version of Python, and then imports the `sitecustomize` that it hides. At the end of a process, it

- records whether rank 0 was in a world of all ranks: the file `met` in the run directory, or `alone` with the
  reason, if its world was smaller, or if it trained a model or used MPI (see `hpcrun_check_world` in `outcome.bash`);
- ends a process whose exit code is not 0 before `MPI_Finalize`, which would wait for the other ranks, while they wait
  for this rank; the launcher then ends the other ranks. The failure is first recorded in `failed.jsonl`. If a signal
  has stopped all ranks, they end with `MPI_Finalize`: a message of this rank may not have reached another rank yet;
- waits for a moment for the threads of torch.distributed.

Programs that import `hpcrun.train` need neither of these hooks, unless they use the world of another library.
`jax.distributed.initialize()` finds this job's ranks.
"""

import atexit
import os
import sys

try:
    import _thread
    import builtins
except ImportError:  # Python 2
    import __builtin__ as builtins  # type: ignore[import-not-found, no-redef]
    import thread as _thread  # type: ignore[import-not-found, no-redef]

TRAINING_MODULES = ("keras", "tf_keras", "tensorflow", "torch", "jax", "flax")
STOP_CODES = (129, 130, 131, 138, 140, 143)  # as in rank.bash
UNDETECTED_LIBRARIES = ("horovod", "ray", "distributed", "oneccl_bindings_for_pytorch", "byteps", "mxnet")
"""Packages through which ranks may communicate in ways that this file cannot detect."""


def main():
    """Register the hooks."""
    if os.environ.get("JAX_NUM_PROCESSES") and sys.version_info >= (3, 7):
        sys.meta_path.insert(0, JaxFinder())
    sys.exit, builtins.SystemExit = make_exit_function(sys.exit), ObservedExit
    if hasattr(_thread, "_excepthook") and "threading" not in sys.modules:
        _thread._excepthook = make_thread_hook(_thread._excepthook)
    atexit.register(end_process)  # atexit calls the first registered function last


def end_process():
    """Record whether rank 0 was in a world of all ranks; after an error, exit before MPI_Finalize."""
    exit_code = find_exit_code()
    if exit_code:
        if "hpcrun.train" not in sys.modules:
            exit_before_finalize(exit_code)
        return
    try:
        wait_for_torch()
        if os.environ.get("HPCRUN_RANK") == "0" and os.environ.get("HPCRUN_RUN_DIR"):
            record_world(os.environ["HPCRUN_RUN_DIR"])
    except Exception:  # an unexpected version of a library must not disturb the program
        pass


# ---- The exit code ---------------------------------------------------------------------------------------------------
exit_codes = []  # type: ignore[var-annotated]  # the codes of SystemExit exceptions that no code caught


class UncaughtExitCheck:
    """An attribute of a SystemExit, deleted with it: outside of any Python frame if no code caught the exception."""

    def __init__(self, code):
        self.code = code

    def __del__(self):
        try:
            sys._getframe(1)
        except ValueError:
            exit_codes.append(self.code)


class ObservedExit(SystemExit):
    """SystemExit with an `UncaughtExitCheck` in the main thread. A frame that refers to it would delay the check."""

    __doc__, __module__ = SystemExit.__doc__, SystemExit.__module__

    def __init__(self, *arguments):
        PythonExit.__init__(self, *arguments)
        if _thread.get_ident() == main_thread:
            self.hpcrun_check = UncaughtExitCheck(self.code)

    def __reduce__(self):
        """Return what pickle and copy need: not the check."""
        return type(self), self.args


PythonExit, main_thread = SystemExit, _thread.get_ident()
ObservedExit.__name__ = ObservedExit.__qualname__ = "SystemExit"  # pickle finds the class by this name


def make_thread_hook(python_hook):
    """Return a replacement for `threading.excepthook`, which would print a traceback of a subclass of SystemExit."""

    def excepthook(arguments):
        if not issubclass(arguments.exc_type, ObservedExit):
            python_hook(arguments)

    return excepthook


def make_exit_function(python_exit):
    """Return a replacement for `sys.exit` that raises an `ObservedExit`."""

    def hpcrun_exit(status=None):
        raise ObservedExit(*(status if isinstance(status, tuple) else () if status is None else (status,)))

    hpcrun_exit.__doc__, hpcrun_exit.__module__ = python_exit.__doc__, "sys"
    hpcrun_exit.__name__ = hpcrun_exit.__qualname__ = "exit"  # pickle finds the function by this name
    return hpcrun_exit


def find_exit_code():
    """Return the exit code of this process; 0 if unknown."""
    last_traceback = getattr(sys, "last_traceback", None)
    if last_traceback and last_traceback.tb_frame.f_back is None:  # raised by the main program, not in a callback
        return 130 if issubclass(sys.last_type, KeyboardInterrupt) else 1
    exit_code = exit_codes[-1] if exit_codes else 0
    return exit_code & 255 if isinstance(exit_code, int) else int(exit_code is not None)


def exit_before_finalize(exit_code):
    """Record the failure and end this process immediately if MPI_Finalize might wait for the other ranks."""
    if (mpi_size() or 1) > 1:
        if exit_code in STOP_CODES and all_ranks_stop():
            return
        try:
            record_failure(os.environ["HPCRUN_RUN_DIR"], exit_code)
        except (EnvironmentError, KeyError, ValueError):
            pass
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (AttributeError, OSError, ValueError):
                pass
        os._exit(exit_code)


def all_ranks_stop():
    """Wait until all ranks are about to end, and return True; return False after a timeout, or without MPI-3."""
    import time

    try:
        deadline = time.time() + float(os.environ["HPCRUN_STOP_SECONDS"])  # from rank.bash
        barrier = sys.modules["mpi4py.MPI"].COMM_WORLD.Ibarrier()
        while not barrier.Test():
            if time.time() > deadline:
                return False
            time.sleep(0.01)
    except Exception:  # an error of MPI, or an old version
        return False
    return True


def record_failure(folder, exit_code):
    """Add a line to failed.jsonl. rank.bash also adds a line, unless the launcher kills it after this process ends.

    No line is added if the job is being stopped, or for an error of MPI, which another failed rank usually causes.
    """
    import time

    is_mpi_error = getattr(sys, "last_type", None) is sys.modules["mpi4py.MPI"].Exception
    if is_mpi_error or exit_code in STOP_CODES or is_being_stopped(folder):
        return
    line = '{{"rank": {}, "host": "{}", "exit_code": {}, "time": {}}}\n'
    rank, host = int(os.environ["HPCRUN_RANK"]), os.uname()[1]
    line = line.format(rank, host, exit_code, int(time.time()))
    write_private(os.path.join(folder, "failed.jsonl"), line, os.O_APPEND)


def is_being_stopped(folder):
    """Return whether the job script has recorded in exit.json that the job is being stopped."""
    try:
        with open(os.path.join(folder, "exit.json")) as file:
            return '"reason": "stopped by ' in file.read()
    except EnvironmentError:
        return False


def wait_for_torch():
    """Wait until threads of torch.distributed have released their tensors.

    On a loaded node, a thread may release a tensor while Python ends, which aborts the process with SIGABRT
    (https://github.com/pytorch/pytorch/issues/190489).
    """
    if torch_size() is not None:
        import time

        time.sleep(0.1)


# ---- The world -------------------------------------------------------------------------------------------------------
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


def write_private(path, text="", flag=os.O_TRUNC):
    """Write a file that only its owner can read; with `flag=os.O_APPEND`, append the text to it."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | flag, 0o600), "w") as file:
        file.write(text)


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


# ---- JAX -------------------------------------------------------------------------------------------------------------
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


# ---- The file that this one hides ------------------------------------------------------------------------------------
def import_hidden():
    """Import the next sitecustomize on sys.path, and remove this folder from sys.path."""
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != folder]
    own_module = sys.modules.pop(__name__)
    try:
        __import__(__name__)
    except ImportError as error:
        if "sitecustomize" not in str(error):
            raise
    finally:
        sys.modules.setdefault(__name__, own_module)


if __name__ == "sitecustomize":
    main()
    import_hidden()
