"""Failure handling: an error on one rank ends all ranks, and is printed once.

If a rank exits while other ranks wait in a collective, they wait until the job's time limit: MPI ends the job only on
`MPI_Abort` (MPI 4.1, section 9.4). So every early exit of a rank calls `MPI_Abort`. A mistake in the script usually
fails on all ranks: rank 0 receives all failures, and only the first is printed.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import permissions
from hpcrun.errors import HpcrunError
from hpcrun.run.script_position import script_position
from hpcrun.run.waiting import current_wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType
    from typing import NoReturn

    from hpcrun.train.ranks.peers import Peers
    from hpcrun.train.types import Json

FLUSH_SECONDS = 1.0  # pause before MPI_Abort, because mpiexec loses output that it has not yet forwarded
MAX_ERROR_CHARACTERS = 100_000  # maximum length of an error message that is sent to rank 0

_previous_excepthooks: list[Callable[[type[BaseException], BaseException, TracebackType | None], object]] = []
_python_exit, _python_os_exit = sys.exit, os._exit
_hooked_pids: list[int] = []  # pid of the process in which the hooks are active, not of forked children
_peers: list[Peers] = []
_first_failures: list[tuple[int, str]] = []
_lock = threading.Lock()


def install_hooks() -> None:
    """Install hooks that print uncaught errors and end all ranks; a second call has no effect."""
    if not _previous_excepthooks:
        _previous_excepthooks.append(sys.excepthook)
        _hooked_pids.append(os.getpid())
        sys.excepthook = _excepthook
        sys.exit = _sys_exit_hook
        os._exit = _os_exit_hook


def connect_peers(peers: Peers) -> None:
    """Connect to rank 0, so that a failure of several ranks is printed once.

    Args:
        peers: The connection to rank 0.
    """
    _peers[:] = [peers]


def report_and_abort(text: str, line: str, exit_code: int, arbiters: Iterable[int] = (0,)) -> NoReturn:
    """Print an error, unless another rank failed first, and end all ranks; callable from any thread.

    Args:
        text: Error message to print after the rank.
        line: Error in one line, printed if another rank failed first.
        exit_code: The exit code.
        arbiters: Ranks to query for the first failure, in this order, until one replies.
    """
    _abort_job(text, line, exit_code, arbiters=arbiters)


def first_failure(rank: int, line: str, text: str) -> Json:
    """Record a failure on rank 0, and return the first failure of the job.

    Args:
        rank: The rank that failed.
        line: Error of the failed rank in one line.
        text: Full error for rank 0 to print, if the failed rank has a separate log; else empty.

    Returns:
        The rank and error line of the first failure.
    """
    with _lock:
        if not _first_failures:
            _first_failures.append((rank, line))
            if text:
                _print(text)
        return _first_failures[0]


def _excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    is_single_rank = _mpi_size() == 1
    if os.getpid() not in _hooked_pids or (is_single_rank and not isinstance(error, HpcrunError | KeyboardInterrupt)):
        _previous_excepthooks[-1](kind, error, trace)
    elif isinstance(error, KeyboardInterrupt):
        _abort_job("interrupted", "interrupted", 130)
    elif isinstance(error, HpcrunError):
        _abort_job(f"error: {error}", f"error: {error.message}", error.exit_code)
    else:
        text = "".join(traceback.format_exception(kind, error, trace)).rstrip()
        is_default_hook = _previous_excepthooks[-1] is sys.__excepthook__
        notes: list[str] = getattr(error, "__notes__", [])  # each of one line, such as the pipeline stage
        line = "".join(traceback.format_exception_only(kind, error)).strip().splitlines()[-1 - len(notes)]
        line += "".join(f" ({note})" for note in notes)
        _abort_job(
            text, line, 1, show=None if is_default_hook else lambda: _previous_excepthooks[-1](kind, error, trace)
        )


def _sys_exit_hook(status: str | int | None = None, /) -> NoReturn:
    # sys.excepthook is not called for SystemExit, and a rank that exits alone would wait in MPI_Finalize.
    is_main = threading.current_thread() is threading.main_thread() and os.getpid() in _hooked_pids
    if status and is_main and _mpi_size() > 1:
        position = script_position(sys._getframe(1), with_library_function=False)  # noqa: SLF001  (documented)
        text = f"{status}" if isinstance(status, str) else f"error: sys.exit({status}) at {position}"
        _abort_job(text, text.splitlines()[0], status if isinstance(status, int) else 1)
    _python_exit(status)


def _os_exit_hook(status: int) -> NoReturn:
    # If a rank ends without MPI_Finalize, MPICH's mpiexec kills the other ranks, and may exit with code 0.
    if os.getpid() in _hooked_pids and _mpi_size() > 1:
        if status or current_wait():
            text = f"error: os._exit({status}) at {script_position(sys._getframe(1), with_library_function=False)}"  # noqa: SLF001
            _abort_job(text, text, status or 1)
        _flush()
        for peers in _peers:
            peers.close()
        sys.modules["mpi4py"].MPI.Finalize()
        ctypes.PyDLL(None).exit(status)  # MPICH notifies mpiexec only in C's atexit
    _python_os_exit(status)


def _mpi_size() -> int:
    mpi = getattr(sys.modules.get("mpi4py"), "MPI", None)
    return int(mpi.COMM_WORLD.size) if mpi and mpi.Is_initialized() and not mpi.Is_finalized() else 1


def _abort_job(
    text: str, line: str, exit_code: int, *, show: Callable[[], object] | None = None, arbiters: Iterable[int] = (0,)
) -> NoReturn:
    if _mpi_size() == 1:
        _print(text)
        _start_mpi_to_abort()
    if _mpi_size() == 1:
        _flush()
        raise SystemExit(exit_code)
    exit_code = exit_code & 255 or 1
    mpi = sys.modules["mpi4py"].MPI
    rank = int(mpi.COMM_WORLD.rank)
    prefix = f"[rank {rank}/{_mpi_size()} on {platform.node()}] "
    text = prefix + text[-MAX_ERROR_CHARACTERS:]
    # Exit even if MPI or a full pipe blocks; the launcher then ends the other ranks.
    exit_timer = threading.Timer(15 * FLUSH_SECONDS, _python_os_exit, [exit_code])
    exit_timer.daemon = True
    exit_timer.start()
    own_log = _has_own_log()
    first_error = _find_first_failure(rank, line, text if own_log else "", arbiters)
    if first_error is None or first_error[0] == rank:
        if show:
            _print(prefix.rstrip())
            show()
        else:
            _print(text)
        _record_failure(rank, exit_code)
    else:
        if first_error[1] != line or own_log:
            _print(f"{prefix}{line} (after rank {first_error[0]}'s error: {first_error[1]})")
        time.sleep(5 * FLUSH_SECONDS)  # wait: the rank that failed first ends all ranks with its exit code
    _flush()
    time.sleep(FLUSH_SECONDS)
    mpi.COMM_WORLD.Abort(exit_code)
    raise SystemExit(exit_code)


def _record_failure(rank: int, exit_code: int) -> None:
    """Record the rank that failed first, because MPI_Abort kills rank.bash before it can record the rank."""
    if folder := os.environ.get("HPCRUN_RUN_DIR"):
        line = {"rank": rank, "host": platform.node(), "exit_code": exit_code, "time": int(time.time())}
        with (
            suppress(OSError),
            open(f"{folder}/failed.jsonl", "a", encoding="utf-8", opener=permissions.opener) as file,
        ):
            file.write(json.dumps(line) + "\n")


def _find_first_failure(rank: int, line: str, text: str, arbiters: Iterable[int]) -> Json:
    if not _peers:
        return None
    for arbiter in arbiters:
        if arbiter == rank:
            return first_failure(rank, line, "")
        try:
            return _peers[0].query(arbiter, {"failed": rank, "line": line, "text": text})
        except ConnectionRefusedError:
            time.sleep(2 * FLUSH_SECONDS)  # the arbiter has exited; if it failed, it also ends this rank
        except OSError:
            continue
    return first_failure(rank, line, "")


def _start_mpi_to_abort() -> None:
    # Before MPI_Init, MPICH's mpiexec ignores exit codes: the other ranks would wait in MPI_Init forever.
    if int(os.environ.get("PMI_SIZE") or 1) > 1 and "mpi4py.MPI" not in sys.modules:
        _flush()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a signal ends this process, which mpiexec notices
        signal.alarm(60)
        with suppress(ImportError, RuntimeError):
            from mpi4py import MPI  # noqa: F401  (the import calls MPI_Init_thread)
        signal.alarm(0)


def _has_own_log() -> bool:
    """Return whether stderr is this rank's own log file; rank 0 writes to the job's log."""
    folder, rank = os.environ.get("HPCRUN_RUN_DIR"), os.environ.get("HPCRUN_RANK", "0")
    with suppress(OSError):
        log = Path(folder or "/nowhere") / "logs" / f"rank-{rank}.log"
        return rank != "0" and os.path.samestat(os.fstat(2), log.stat())
    return False


def _print(text: str) -> None:
    print(text + "\n", end="", file=sys.stderr, flush=True)


def _flush() -> None:
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
