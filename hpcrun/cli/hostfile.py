"""``hpcrun hostfile``: write the hostfile of an allocation for an MPI launcher."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path  # noqa: TC003 - Typer reads the annotations

import typer

from hpcrun import permissions
from hpcrun.errors import HpcrunError


def hostfile(
    format: str = typer.Option(
        "plain", "--format", metavar="FORMAT", help="Format of the launcher, from the table above."
    ),
    output: Path | None = typer.Option(
        None,
        "--output",
        "-o",
        metavar="FILE",
        help="File to write instead of stdout.",
    ),
    source: Path | None = typer.Option(
        None,
        "--hostfile",
        metavar="FILE",
        help="Hostfile to read instead of the scheduler's variables.",
    ),
    nodes: int | None = typer.Option(
        None, "--nodes", "-N", min=1, metavar="N", help="Number of hosts to list, from the first; default: all."
    ),
    ntasks: int | None = typer.Option(
        None,
        "--ntasks",
        "-n",
        min=1,
        metavar="N",
        help="Number of ranks on all hosts together; default: as allocated.",
    ),
    ntasks_per_node: int | None = typer.Option(
        None,
        "--ntasks-per-node",
        min=1,
        metavar="N",
        help="Number of ranks on each host, or with --ntasks its maximum.",
    ),
    json: bool = typer.Option(False, "--json", help="Print one JSON value, with source, hosts and tasks."),
) -> None:
    """Write the hostfile of the current job.

    The command reads only variables of Slurm, Carme, PBS, LSF or OAR, and runs none of their commands; so it also works
    in containers. Outside a job it lists this host, with one task.

    \b
    --format   lines         for
    openmpi    n1 slots=2    mpirun --hostfile (Open MPI)
    hydra      n1:2          mpiexec -f (MPICH, Intel MPI)
    ranks      n1            one line per rank, as in $PBS_NODEFILE
    plain      n1            one line per host, for ssh loops and pdsh

    \b
    Examples:
      hpcrun hostfile --format openmpi -o hosts && mpirun --hostfile hosts ./a
      hpcrun hostfile --format hydra --ntasks-per-node 1  # one rank per node
      for host in $(hpcrun hostfile); do ssh $host nvidia-smi; done
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from dataclasses import asdict
    from json import dumps

    from hpcrun.allocation import Allocation

    allocation = Allocation.from_hostfile(source) if source else Allocation.from_environment(os.environ)
    allocation = allocation.with_nodes(nodes).with_tasks(ntasks, ntasks_per_node)
    text = f"{dumps(asdict(allocation))}\n" if json else allocation.hostfile(format)
    if output and str(output) != "-":
        _write(output, text)
    else:
        typer.echo(text, nl=False)


def _write(path: Path, text: str) -> None:
    temporary_file = path.parent / f".{path.name}.{os.uname().nodename}.{os.getpid()}"
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            # renaming a temporary file would replace a pipe, or a link such as /dev/stdout
            path.write_text(text, encoding="utf-8")
            return
        with open(temporary_file, "w", encoding="utf-8", opener=permissions.opener) as stream:
            stream.write(text)
        temporary_file.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary_file.unlink()
        raise HpcrunError(f"cannot write {path}: {error.strerror}") from error
