"""The interface of launchers, for the modules of this package and for plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hpcrun.spec import JobSpec


@frozen(kw_only=True)
class Launcher:
    """A program that starts the ranks of a job: its command, variables and behaviour.

    A package adds a launcher by an entry point in the group ``hpcrun.launchers`` that refers to a `Launcher`.

    Attributes:
        name: The launcher's name in site files, and the name of its program.
        command: A function of the job and the path of the hostfile that returns the words before the program.
        rank: Environment variables with the rank number in MPI_COMM_WORLD; the first variable that is set is used. For
            a launcher that starts one process, the rank number itself, as text.
        local_rank: Environment variables with the local rank number on the node, or the number itself.
        local_ranks: Environment variables with the number of ranks on the node, or the number itself.
        hostfile: The hostfile format that the launcher reads (`hpcrun hostfile --format`).
        stop_signal: The signal that the launcher forwards to its ranks before it waits for them to exit.
        ignores_failures: Whether the launcher may wait for the other ranks forever after a rank has failed. If so,
            hpcrun ends a failed rank by a signal, and then ends the launcher.
        hides_signals: Whether the launcher may exit with 0 after the scheduler has ended its ranks by a signal.
        uses_slurm: Whether the launcher starts ranks with Slurm's plugins, for ``mpi.type`` and for pyxis.
        bash_file: The file with bash functions that forward signals to the ranks and correct the exit code
            (``shell/launch.bash``); None to use hpcrun's own functions.
        pmi: PMI variables; a rank needs one of them to find the other ranks; empty if the launcher always sets them.
        libraries: Values of ``mpi.library`` that the launcher supports; empty for all.
        part_of_mpi: Whether the launcher is part of the MPI libraries in `libraries`.
        starts_over_ssh: Whether the launcher can start ranks over ssh, without a scheduler.
        version: Arguments with which the launcher prints its version; empty if hpcrun does not need the version.
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
        """Whether the launcher starts a single process instead of several ranks."""
        return self.rank[0].isdigit()

    def belongs_to(self, library: str) -> bool:
        """Return whether this launcher belongs to an MPI library (a value of ``mpi.library``)."""
        return self.part_of_mpi and library in self.libraries

    def supports(self, library: str) -> bool:
        """Return whether this launcher can start programs of an MPI library."""
        return not self.libraries or library in self.libraries
