"""The ``hpcrun`` program: its commands, and what happens to errors."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hpcrun import __version__
from hpcrun.cli import hostfile, jobs, site, submit, workload
from hpcrun.cli.options import SplitCommand
from hpcrun.errors import HpcrunError

app = typer.Typer(
    name="hpcrun",
    no_args_is_help=True,
    rich_markup_mode=None,  # importing rich would double the time of --help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        print(f"hpcrun {__version__}")
        raise typer.Exit


@app.callback()
def hpcrun(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Submit data-parallel Keras training, or any MPI program, to any Slurm cluster.

    \b
    Examples:
      hpcrun submit lenet5 --ntasks 2 --wait
      hpcrun submit resnet50 --nodes 2 --gpus-per-node 4 --dry-run
      hpcrun status
    """  # noqa: D301 - \\b keeps the lines of the examples as they are


for command in (submit.submit, submit.run):
    app.command(cls=SplitCommand)(command)
for command in (jobs.status, jobs.logs, jobs.result, jobs.cancel):
    app.command()(command)
app.command()(hostfile.hostfile)
app.add_typer(site.app, name="site")
app.add_typer(workload.app, name="workload")


def main() -> None:
    """Run the program; a user's mistake is told without a traceback, and is no success."""
    try:
        app(prog_name="hpcrun")
    except HpcrunError as error:
        print(f"ERROR: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # the reader of our output, such as head, has had enough
        sys.stderr.close()
        sys.exit(141)
