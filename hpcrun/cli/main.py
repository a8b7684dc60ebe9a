"""The ``hpcrun`` program: its table of commands, and how it prints errors."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any
from warnings import formatwarning

import typer

from hpcrun.cli import output, streams
from hpcrun.errors import HpcrunError, sanitize
from hpcrun.version import __version__

USAGE_ERROR: Any = typer.BadParameter.__mro__[1]
"""Click's UsageError, which Typer has under a private name."""

COMMANDS = {
    "submit": "hpcrun.cli.submit",
    "run": "hpcrun.cli.submit",
    "resubmit": "hpcrun.cli.resubmit",
    "resume": "hpcrun.cli.resume",
    "status": "hpcrun.cli.status",
    "watch": "hpcrun.cli.watch",
    "logs": "hpcrun.cli.logs",
    "result": "hpcrun.cli.result",
    "compare": "hpcrun.cli.compare",
    "report": "hpcrun.cli.report",
    "cancel": "hpcrun.cli.cancel",
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
"""The module of each command. It has a function named like the command, a Typer ``app``, or ``group`` to make one."""


def _print_version(value: bool) -> None:
    if value:
        print(f"hpcrun {__version__}")
        raise typer.Exit


def _hpcrun(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Submit data-parallel Keras training, or any MPI program, to any Slurm cluster.

    \b
    Examples:
      hpcrun submit lenet5 --ntasks 2 --wait
      hpcrun submit resnet50 --nodes 2 --gpus-per-node 4 --dry-run
      hpcrun status
    """  # noqa: D301 - \\b keeps the lines of the examples as they are


def make_app(argv: list[str]) -> typer.Typer:
    """Return the Typer app with the command that the arguments name, or with all commands.

    Declaring a command takes Typer a few milliseconds, so the others are left out.

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


def _print_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
) -> None:
    """Print a FutureWarning as a message for people, and other warnings as Python does."""
    if category is FutureWarning:
        output.message(f"WARNING: {_mask_and_sanitize(message)}")
    else:
        sys.stderr.write(formatwarning(message, category, filename, lineno))


def _require_single_installation() -> None:
    """Refuse to run where PyPI's hpcrun, another project, is installed too: both packages overwrite each other."""
    site_packages = Path(__file__).parents[2]
    if other := next(site_packages.glob("hpcrun-[0-9]*.dist-info"), None):
        name, _, version = other.name.removesuffix(".dist-info").partition("-")
        raise HpcrunError(
            f"{site_packages} has two distributions of a package hpcrun: hpcrun-slurm, which this is, and PyPI's "
            f"{name} {version}, another project; each has overwritten files of the other",
            hint="python -m pip uninstall -y hpcrun hpcrun-slurm; python -m pip install hpcrun-slurm",
        )


def _mask_and_sanitize(text: object) -> str:
    from hpcrun.secrets import mask

    return sanitize(mask(str(text)))


def _print_error(error: HpcrunError) -> int:
    """Print an error, and return its exit code."""
    output.message(f"ERROR: {_mask_and_sanitize(error)}")
    return error.exit_code


def _print_usage_error(error: Any) -> int:
    """Print an error of the command line, or the help of a group without a command; return the exit code."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return 2
    from hpcrun.cli import usage_errors

    return _print_error(usage_errors.explain(error, sys.argv[1:]))


def main() -> None:
    """Run the program, print errors without a traceback, and exit with the right code."""
    streams.open_closed_streams()
    streams.require_utf8_mode()
    warnings.showwarning = _print_warning
    code: int | str | None = 0
    try:
        _require_single_installation()
        streams.require_stdout()
        streams.require_current_folder()
        result = make_app(sys.argv[1:])(prog_name="hpcrun", standalone_mode=False)
        code = result if isinstance(result, int) else 0
    except SystemExit as exit_request:
        code = exit_request.code
    except HpcrunError as error:
        code = _print_error(error)
    except USAGE_ERROR as error:
        code = _print_usage_error(error)
    except typer.Abort:
        print("Aborted!", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # the reader of our output, such as head, closed the pipe
        code = streams.BROKEN_PIPE
    except OSError as error:
        print(sanitize(f"ERROR: {error.filename or 'stdout, or a file'}: {error.strerror}"), file=sys.stderr)
        code = 1
    sys.exit(streams.flush(code))
