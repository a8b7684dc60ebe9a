"""none: one process, started by the job script itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.launchers.base import Launcher

if TYPE_CHECKING:
    from hpcrun.spec import JobSpec


def command(_spec: JobSpec, _hostfile: str) -> list[str]:
    """Return no words: the program is started as it is."""
    return []


LAUNCHER = Launcher(name="none", command=command, rank=("0",), local_rank=("0",), local_ranks=("1",))
