"""The ``hpcrun`` program: the table of commands, and the output of errors."""

from __future__ import annotations

import os
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any
from warnings import formatwarning

import typer

from hpcrun.cli import output, streams
from hpcrun.cli.help_page import USAGE_ERROR, Command, Group
from hpcrun.errors import HpcrunError, sanitize
from hpcrun.version import __version__

COMPLETION_VARIABLE = "_HPCRUN_COMPLETE"
"""The environment variable with which a shell asks for completions."""

PANELS = {
    "Start jobs": {
        "submit": "Submit a job to the cluster.",
        "run": "Run a job now, in the foreground.",
        "resubmit": "Submit an earlier run again, from its record.",
        "resume": "Continue a stopped or failed run from its checkpoint.",
    },
    "Follow jobs": {
        "status": "Show the states of jobs.",
        "watch": "Watch a job live, until it ends.",
        "logs": "Print the log of a job, or the logs of its ranks.",
        "why": "Explain why a job is pending or failed, and what to do.",
    },
    "Compare results": {
        "result": "Show the metrics that jobs ended with.",
        "compare": "Show how runs differ.",
        "report": "Write an HTML page about a job, to keep or to send.",
    },
    "Use trained models": {
        "predict": "Predict the classes of images with the saved model of a job.",
        "export": "Export the saved model of a job for other programs.",
    },
    "Stop and clean up": {
        "cancel": "Cancel jobs with all their ranks.",
        "cleanup": "End processes and remove files that jobs left on their nodes.",
        "prune": "Remove run directories of jobs that have ended.",
    },
    "Set up sites and workloads": {
        "site": "List, write, check and share the site files of clusters.",
        "doctor": "Check a cluster against its site file, and print what to fix.",
        "data": "Build, check and split data sets of images.",
        "workload": "List, show and copy the workloads that come with hpcrun.",
        "config": "Show the folders of sites and templates, and how the site was chosen.",
    },
    "Write job scripts by hand": {
        "hostfile": "Write the hostfile of the current job.",
        "cuda": "Show the CUDA libraries and the variables that a GPU job sets for them.",
    },
}
"""The first line of each command's help, by panel: ``hpcrun --help`` imports none of the commands' modules."""

COMMANDS = {name: panel for panel, commands in PANELS.items() for name in commands}
"""The help panel of each command. The module of a command has a function with the command's name, or ``group``."""

MODULES = {"run": "submit"}
"""Names of modules that differ from the names of their commands."""


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

    Declaring a command takes Typer a few milliseconds, so only the necessary commands are declared. The page ``hpcrun
    --help`` needs only the names of commands.

    Args:
        argv: The arguments of hpcrun.
    """
    app = typer.Typer(
        cls=Group,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_hpcrun)
    only_command_names = argv[:1] in ([], ["-h"], ["--help"]) and COMPLETION_VARIABLE not in os.environ
    for name in argv[:1] if argv and argv[0] in COMMANDS else COMMANDS:
        panel = COMMANDS[name]
        if only_command_names:
            app.command(name, cls=Command, rich_help_panel=panel, help=PANELS[panel][name])(_hpcrun)
            continue
        module = import_module(f"hpcrun.cli.{MODULES.get(name, name)}")
        if hasattr(module, "group"):
            group = module.group(argv[1:] if argv[:1] == [name] else [])
            app.add_typer(group, name=name, cls=Group, rich_help_panel=panel)
        else:
            cls = getattr(module, "COMMAND_CLASS", Command)
            app.command(name, cls=cls, rich_help_panel=panel)(getattr(module, name))
    return app


def _print_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
) -> None:
    """Print a FutureWarning as a message for users, and other warnings as Python does."""
    if category is FutureWarning:
        output.message(f"WARNING: {_mask_and_sanitize(message)}")
    else:
        sys.stderr.write(formatwarning(message, category, filename, lineno))


def _require_single_installation() -> None:
    """Refuse to run if PyPI's unrelated project hpcrun is installed, because it overwrites files of this package."""
    site_packages = Path(__file__).parents[2]
    if other_project := next(site_packages.glob("hpcrun-[0-9]*.dist-info"), None):
        name, _, version = other_project.name.removesuffix(".dist-info").partition("-")
        raise HpcrunError(
            f"{site_packages} has two distributions of a package hpcrun: hpcrun-slurm, which this is, and PyPI's "
            f"{name} {version}, another project; each distribution has overwritten files of the other",
            hint="python -m pip uninstall -y hpcrun hpcrun-slurm; python -m pip install hpcrun-slurm",
        )


def _require_typed_characters(argv: list[str]) -> None:
    if not all(map(str.isascii, argv)):
        from hpcrun.cli import pasted_text

        pasted_text.require_typed_characters(argv)


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
    from hpcrun.secrets import mask_command

    hpcrun_error = usage_errors.explain(error, sys.argv[1:])
    hpcrun_error.hint = mask_command(hpcrun_error.hint or "") or None  # the hint may repeat the command line
    return _print_error(hpcrun_error)


def main() -> None:
    """Run the program, print errors without a traceback, and exit with the exit code of the command."""
    streams.open_closed_streams()
    streams.require_utf8_mode()
    warnings.showwarning = _print_warning
    exit_code: int | str | None = 0
    is_error_printed = False
    try:
        _require_single_installation()
        streams.require_stdout()
        streams.require_working_directory()
        _require_typed_characters(sys.argv[1:])
        result = make_app(sys.argv[1:])(prog_name="hpcrun", standalone_mode=False)
        exit_code = result if isinstance(result, int) else 0
    except SystemExit as exit_request:
        exit_code = exit_request.code
    except HpcrunError as error:
        exit_code = _print_error(error)
    except USAGE_ERROR as error:
        exit_code = _print_usage_error(error)
    except typer.Abort:
        print("Aborted!", file=sys.stderr)
        exit_code = 1
    except KeyboardInterrupt:
        exit_code = 130
    except BrokenPipeError:  # the program that reads stdout, such as head, closed the pipe
        exit_code = streams.BROKEN_PIPE
    except OSError as error:
        output.message(f"ERROR: {error.filename or 'stdout, or a file'}: {error.strerror}")
        exit_code, is_error_printed = 1, True
    sys.exit(streams.flush(exit_code, is_error_printed=is_error_printed))
