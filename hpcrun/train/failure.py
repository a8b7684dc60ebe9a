"""One rank's failure ends all of them.

A rank that leaves while the others wait in a collective leaves them waiting until the job's time limit; MPI ends the
job only on `MPI_Abort` (MPI 4.1, section 9.4). So whatever ends a rank early goes through it.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import NoReturn


def install() -> None:
    """Make this process's uncaught errors readable, and let them end every rank; once is enough, twice does no harm."""
    if not _previous:
        _previous.append(sys.excepthook)
        sys.excepthook = _excepthook
        sys.exit = _exit


_previous: list[Callable[[type[BaseException], BaseException, TracebackType | None], object]] = []
_python_exit = sys.exit


def _excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, HpcrunError):
        print(f"{_whoami()}error: {error}", file=sys.stderr)
        _end(error.exit_code)
    _previous[-1](kind, error, trace)
    _end(1)


def _exit(status: str | int | None = None, /) -> NoReturn:
    # SystemExit does not reach the excepthook, and a rank that exits alone would wait in MPI_Finalize for the others.
    if status and _ranks() > 1:
        if isinstance(status, str):
            print(status, file=sys.stderr)
        _end(status if isinstance(status, int) else 1)
    _python_exit(status)


def _ranks() -> int:
    mpi = getattr(sys.modules.get("mpi4py"), "MPI", None)
    return int(mpi.COMM_WORLD.size) if mpi and mpi.Is_initialized() and not mpi.Is_finalized() else 1


def _whoami() -> str:
    return f"[rank {sys.modules['mpi4py'].MPI.COMM_WORLD.rank}/{_ranks()}] " if _ranks() > 1 else ""


def _end(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    if _ranks() > 1:
        # The launcher ends at the abort, and what it has not yet passed on is lost (seen with MPICH's mpiexec).
        time.sleep(1)
        sys.modules["mpi4py"].MPI.COMM_WORLD.Abort(code)
    raise SystemExit(code)
