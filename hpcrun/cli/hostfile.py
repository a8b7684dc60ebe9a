"""``hpcrun hostfile``: tell an MPI launcher where to start its ranks."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path  # noqa: TC003 - Typer reads the annotations

import typer

from hpcrun import permissions
from hpcrun.errors import HpcrunError


def hostfile(
    format: str = typer.Option("plain", "--format", metavar="FORMAT", help="The launcher's dialect, see above."),
    output: Path | None = typer.Option(
        None,
        "--output",
        "-o",
        metavar="FILE",
        help="Write there instead of to stdout: all of it, or nothing.",
    ),
    source: Path | None = typer.Option(
        None, "--hostfile", metavar="FILE", help="Read the hosts from this hostfile, not from the scheduler."
    ),
    nodes: int | None = typer.Option(None, "--nodes", "-N", min=1, help="The first so many hosts. Not given: all."),
    ntasks: int | None = typer.Option(
        None,
        "--ntasks",
        "-n",
        min=1,
        help="Ranks over all hosts, spread as srun does. Not given: as granted.",
    ),
    ntasks_per_node: int | None = typer.Option(
        None, "--ntasks-per-node", min=1, help="Ranks on each host; with --ntasks the most on one."
    ),
    json: bool = typer.Option(False, "--json", help="Print the source, and the hosts with their tasks, as JSON."),
) -> None:
    """Write the hostfile of the job that this command runs in.

    It reads the variables that Slurm, Carme, PBS, LSF or OAR set, and runs
    none of their commands: it works in a container too. Outside a job it
    names this host, with one task.

    \b
    --format   lines         for
    openmpi    n1 slots=2    mpirun --hostfile (Open MPI)
    hydra      n1:2          mpiexec -f (MPICH, Intel MPI)
    ranks      n1            one line a rank, as in $PBS_NODEFILE
    plain      n1            one line a host, for ssh loops and pdsh

    \b
    hpcrun hostfile --format openmpi -o hosts && mpirun --hostfile hosts ./train
    hpcrun hostfile --format hydra --ntasks-per-node 1      # one rank a node
    for host in $(hpcrun hostfile); do ssh $host nvidia-smi; done
    """  # noqa: D301 - \\b is Typer's mark for lines to keep
    from dataclasses import asdict
    from json import dumps

    from hpcrun.allocation import Allocation

    found = Allocation.from_hostfile(source) if source else Allocation.from_environment(os.environ)
    found = found.with_nodes(nodes).with_tasks(ntasks, ntasks_per_node)
    text = f"{dumps(asdict(found))}\n" if json else found.hostfile(format)
    if output:
        _write(output, text)
    else:
        typer.echo(text, nl=False)


def _write(path: Path, text: str) -> None:
    part = path.parent / f".{path.name}.{os.uname().nodename}.{os.getpid()}"
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            # A rename would replace the pipe, or the link that is /dev/stdout.
            path.write_text(text, encoding="utf-8")
            return
        with open(part, "w", encoding="utf-8", opener=permissions.opener) as opened:
            opened.write(text)
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise HpcrunError(f"cannot write {path}: {error.strerror}") from error
