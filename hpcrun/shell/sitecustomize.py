"""Hooks in all Python processes of a job's ranks.

`rank.bash` puts this folder at the front of `PYTHONPATH`, so that each Python process of a rank imports this file when
it starts (https://docs.python.org/3/library/site.html). It imports no module that the program does not import itself,
except small ones of this folder, works with any version of Python, and then imports the `sitecustomize` that it
hides. At the end of a process, it

- records whether rank 0 was connected to all ranks, by MPI or another library (`hpcrun_world.py`); for
  torch.distributed already when it connects;
- ends a process whose exit code is not 0 before `MPI_Finalize`, which would wait for the other ranks, while they wait
  for this rank; the launcher then ends the other ranks. The failure is first recorded in `failed.jsonl`. If a signal
  has stopped all ranks, they end with `MPI_Finalize`: a message of this rank may not have reached another rank yet;
- waits for a moment for the threads of torch.distributed.

`hpcrun.train` does the first two itself, for the ranks that it connects.
`hpcrun_jax.py` lets `jax.distributed.initialize()` find this job's ranks.
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

import hpcrun_world

STOP_CODES = (129, 130, 131, 138, 140, 143)  # as in rank.bash


def main():
    """Register the hooks."""
    if sys.version_info >= (3, 7):
        add_import_hooks()
    sys.exit, builtins.SystemExit = make_exit_function(sys.exit), ObservedExit
    if hasattr(_thread, "_excepthook") and "threading" not in sys.modules:
        _thread._excepthook = make_thread_hook(_thread._excepthook)
    atexit.register(end_process)  # atexit calls the first registered function last


def add_import_hooks():
    """Let the import of JAX add this job's ranks, and that of torch.distributed on rank 0 the record of its worlds."""
    from hpcrun_import_hook import ImportHook

    if os.environ.get("JAX_NUM_PROCESSES"):
        import hpcrun_jax

        sys.meta_path.insert(0, ImportHook("jax._src.clusters", hpcrun_jax.add_jax_cluster))
    if os.environ.get("HPCRUN_RANK") == "0" and os.environ.get("HPCRUN_RUN_DIR"):
        sys.meta_path.insert(0, ImportHook("torch.distributed.distributed_c10d", hpcrun_world.observe_torch))


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
            hpcrun_world.record_world(os.environ["HPCRUN_RUN_DIR"])
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
    if (hpcrun_world.mpi_size() or 1) > 1:
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
    hpcrun_world.write_private(os.path.join(folder, "failed.jsonl"), line, os.O_APPEND)


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
    if hpcrun_world.torch_size() is not None:
        import time

        time.sleep(0.1)


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
