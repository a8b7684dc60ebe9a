"""The ``hpcrun`` program: its commands, and what happens to errors."""

from __future__ import annotations

import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated

import typer

from hpcrun.errors import HpcrunError
from hpcrun.version import __version__

COMMANDS = {
    "submit": "hpcrun.cli.submit",
    "run": "hpcrun.cli.submit",
    "status": "hpcrun.cli.jobs",
    "logs": "hpcrun.cli.jobs",
    "result": "hpcrun.cli.jobs",
    "cancel": "hpcrun.cli.jobs",
    "hostfile": "hpcrun.cli.hostfile",
    "site": "hpcrun.cli.site",
    "workload": "hpcrun.cli.workload",
}
"""Each command's module, which has a function of its name, or a Typer app of its own."""


def _version(value: bool) -> None:
    if value:
        print(f"hpcrun {__version__}")
        raise typer.Exit


def _hpcrun(
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


def program(argv: list[str]) -> typer.Typer:
    """Return the Typer app: with the one command that the arguments name, else with all.

    Declaring a command takes Typer a few milliseconds, and a command line has but one.

    Args:
        argv: The arguments.
    """
    app = typer.Typer(
        no_args_is_help=True,
        rich_markup_mode=None,  # importing rich would double the time of --help
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_hpcrun)
    for name in argv[:1] if argv and argv[0] in COMMANDS else COMMANDS:
        module = import_module(COMMANDS[name])
        if hasattr(module, name):
            app.command(name, cls=getattr(module, "COMMAND_CLASS", None))(getattr(module, name))
        else:
            app.add_typer(module.app, name=name)
    return app


def main() -> None:
    """Run the program; a user's mistake is told without a traceback, and is no success."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="surrogateescape")  # file names and arguments may be any bytes
    try:
        program(sys.argv[1:])(prog_name="hpcrun")
    except HpcrunError as error:
        print(f"ERROR: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output, such as head, has had enough
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:
        print(f"ERROR: {error.filename or 'the system'}: {error.strerror}", file=sys.stderr)
        sys.exit(1)
