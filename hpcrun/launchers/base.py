"""What a launcher is: the interface of the modules in this package, and of packages that add one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.spec import JobSpec


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """How ranks are started, and how each rank learns its number.

    A package adds a launcher by an entry point in the group ``hpcrun.launchers``, which names a `Launcher`.

    Attributes:
        name: What site files call it, and its program.
        command: Return the words of the launch line before the program, from the job and the path of its hostfile.
        rank: Environment variables that hold the rank in MPI_COMM_WORLD; the first that is set counts. A number is
            the rank itself, of a launcher that starts one process.
        local_rank: The same for the rank on its node.
        local_ranks: The same for the number of ranks on its node.
        hostfile: The hostfile format that it reads (`hpcrun hostfile --format`).
        stop_signal: The signal that it forwards to its ranks before it waits for them to exit.
        pmi: Variables by which MPI finds the other ranks, of which a rank must have one; empty where it always does.
        libraries: Values of ``mpi.library`` whose programs it can start; empty for all.
        vendor: Whose options it takes, as messages say it: ``Open MPI's``.
        has_own_options: Whether it is a part of `libraries`, and hpcrun uses options that only theirs has.
        starts_over_ssh: Whether it can reach nodes without a scheduler.
        version: Words after its name that print its version; empty where no version matters.
    """

    name: str
    command: Callable[[JobSpec, str], list[str]]
    rank: tuple[str, ...]
    local_rank: tuple[str, ...]
    local_ranks: tuple[str, ...]
    hostfile: str = "plain"
    stop_signal: str = "TERM"
    pmi: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    vendor: str = ""
    has_own_options: bool = False
    starts_over_ssh: bool = False
    version: tuple[str, ...] = ()

    def comes_with(self, library: str) -> bool:
        """Return whether an MPI library, a value of ``mpi.library``, has it as its own launcher."""
        return self.has_own_options and library in self.libraries

    def mismatches(self, library: str) -> bool:
        """Return whether it gets options that the launcher of an MPI library does not have."""
        return self.has_own_options and library not in self.libraries
