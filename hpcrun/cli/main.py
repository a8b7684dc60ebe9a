"""The ``hpcrun`` program: its commands, and what happens to errors."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any
from warnings import formatwarning

import typer

from hpcrun.cli import streams
from hpcrun.errors import HpcrunError, sanitize
from hpcrun.version import __version__

COMMANDS = {
    "submit": "hpcrun.cli.submit",
    "run": "hpcrun.cli.submit",
    "resubmit": "hpcrun.cli.resubmit",
    "status": "hpcrun.cli.status",
    "watch": "hpcrun.cli.watch",
    "logs": "hpcrun.cli.logs",
    "result": "hpcrun.cli.jobs",
    "compare": "hpcrun.cli.compare",
    "report": "hpcrun.cli.report",
    "cancel": "hpcrun.cli.jobs",
    "why": "hpcrun.cli.why",
    "cleanup": "hpcrun.cli.cleanup",
    "prune": "hpcrun.cli.prune",
    "hostfile": "hpcrun.cli.hostfile",
    "cuda": "hpcrun.cli.cuda",
    "doctor": "hpcrun.cli.doctor",
    "site": "hpcrun.cli.site",
    "workload": "hpcrun.cli.workload",
    "config": "hpcrun.cli.config",
}
"""Each command's module, which has a function of its name, a Typer app, or a function ``group`` that makes one."""


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
        if hasattr(module, "group"):
            app.add_typer(module.group(argv[1:] if argv[:1] == [name] else []), name=name)
        elif hasattr(module, name):
            app.command(name, cls=getattr(module, "COMMAND_CLASS", None))(getattr(module, name))
        else:
            app.add_typer(module.app, name=name)
    return app


def _warn(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any) -> None:
    """Tell people what a warning says; those for programmers look as Python shows them."""
    text = (
        f"WARNING: {_shown(message)}\n"
        if category is FutureWarning
        else formatwarning(message, category, filename, lineno)
    )
    sys.stderr.write(text)


def _only_one() -> None:
    """Refuse to run beside PyPI's hpcrun: another project, whose package has our name and overwrites our files."""
    beside = Path(__file__).parents[2]
    if other := next(beside.glob("hpcrun-[0-9]*.dist-info"), None):
        name, _, version = other.name.removesuffix(".dist-info").partition("-")
        raise HpcrunError(
            f"{beside} has two distributions of a package hpcrun: hpcrun-slurm, which this is, and PyPI's "
            f"{name} {version}, another project; each has overwritten files of the other",
            hint="python -m pip uninstall -y hpcrun hpcrun-slurm; python -m pip install hpcrun-slurm",
        )


def _shown(text: object) -> str:
    from hpcrun.secrets import mask

    return sanitize(mask(str(text)))


def main() -> None:
    """Run the program; a user's mistake is told without a traceback, and is no success."""
    streams.open_closed()
    streams.speak_utf8()
    warnings.showwarning = _warn
    code: int | str | None = 0
    try:
        _only_one()
        streams.require_stdout()
        streams.require_folder()
        program(sys.argv[1:])(prog_name="hpcrun")
    except SystemExit as done:
        code = done.code
    except HpcrunError as error:
        print(f"ERROR: {_shown(error)}", file=sys.stderr)
        code = error.exit_code
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # the reader of our output, such as head, has had enough
        code = streams.BROKEN_PIPE
    except OSError as error:
        print(sanitize(f"ERROR: {error.filename or 'stdout, or a file'}: {error.strerror}"), file=sys.stderr)
        code = 1
    sys.exit(streams.flushed(code))
