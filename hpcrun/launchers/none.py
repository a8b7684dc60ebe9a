"""The launcher ``none``: the job script itself starts a single process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.launchers.base import Launcher
from hpcrun.paths import shell_library

if TYPE_CHECKING:
    from hpcrun.spec import JobSpec


def command(_spec: JobSpec, _hostfile: str) -> list[str]:
    """Return no words: the job script starts the program directly."""
    return []


LAUNCHER = Launcher(
    name="none",
    command=command,
    rank=("0",),
    local_rank=("0",),
    local_ranks=("1",),
    bash_file=shell_library() / "none.bash",
)
