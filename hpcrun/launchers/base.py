"""The interface of launchers, for the modules of this package and for plugins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hpcrun.spec import JobSpec


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """A program that starts the ranks of a job: its command, its variables and its behaviour.

    A package adds a launcher by an entry point in the group ``hpcrun.launchers`` that refers to a `Launcher`.

    Attributes:
        name: Its name in site files, and its program.
        command: A function of the job and the path of its hostfile that returns the words before the program.
        rank: Environment variables that hold the rank in MPI_COMM_WORLD; the first that is set counts. A launcher that
            starts one process has the rank itself instead, as a number.
        local_rank: The same for the rank on its node.
        local_ranks: The same for the number of ranks on its node.
        hostfile: The hostfile format that it reads (`hpcrun hostfile --format`).
        stop_signal: The signal that it forwards to its ranks before it waits for them to exit.
        ignores_failures: Whether it may wait for the other ranks forever after one has failed. Then a failed rank ends
            by a signal, and hpcrun ends the launcher.
        hides_signals: Whether it may exit with 0 after the scheduler has ended its ranks by a signal.
        uses_slurm: Whether it starts ranks by Slurm's plugins: those of ``mpi.type``, and pyxis for containers.
        bash_file: The file of its bash functions, which hpcrun_launch loads: they pass signals on to the ranks and
            correct its exit code (``shell/launch.bash``); None if those of hpcrun fit.
        pmi: PMI variables, of which a rank needs one to find the others; empty if the launcher always sets them.
        libraries: Values of ``mpi.library`` that it supports; empty for all.
        part_of_mpi: Whether it is a part of these libraries.
        starts_over_ssh: Whether it can reach nodes without a scheduler.
        version: Arguments that print its version; empty if the version does not matter.
    """

    name: str
    command: Callable[[JobSpec, str], list[str]]
    rank: tuple[str, ...]
    local_rank: tuple[str, ...]
    local_ranks: tuple[str, ...]
    hostfile: str = "plain"
    stop_signal: str = "TERM"
    ignores_failures: bool = False
    hides_signals: bool = False
    uses_slurm: bool = False
    bash_file: Path | None = None
    pmi: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    part_of_mpi: bool = False
    starts_over_ssh: bool = False
    version: tuple[str, ...] = ()

    @property
    def starts_one_process(self) -> bool:
        """Whether it starts one process, not several ranks."""
        return self.rank[0].isdigit()

    def comes_with(self, library: str) -> bool:
        """Return whether it is the launcher of an MPI library, a value of ``mpi.library``."""
        return self.part_of_mpi and library in self.libraries

    def supports(self, library: str) -> bool:
        """Return whether it can start programs of an MPI library."""
        return not self.libraries or library in self.libraries
