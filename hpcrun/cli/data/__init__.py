"""``hpcrun data``: data sets of images as sharded TFRecords."""

from __future__ import annotations

from importlib import import_module

import typer

from hpcrun.cli.help_page import Command, Group
from hpcrun.errors import HpcrunError

COMMANDS = {
    "build": ("build", "build"),
    "imagenet": ("build", "imagenet"),
    "mnist": ("build", "mnist"),
    "cifar10": ("build", "cifar10"),
    "synthetic": ("build", "synthetic"),
    "info": ("info", "info"),
    "split": ("split", "split"),
}
"""The module of each command in this folder, and its function."""


def group(argv: list[str]) -> typer.Typer:
    """Return the Typer app of ``hpcrun data`` with the command that the arguments name, or with all commands.

    Args:
        argv: The arguments after ``data``.
    """
    app = typer.Typer(
        cls=Group,
        no_args_is_help=True,
        help="Build, check and split data sets of images.\n\n\b\n"
        "Examples:\n  hpcrun data build photos records --validation 0.1\n  hpcrun data info records\n"
        "  hpcrun data mnist records",
    )
    for name in argv[:1] if argv and argv[0] in COMMANDS else COMMANDS:
        module, function = COMMANDS[name]
        app.command(name, cls=Command)(getattr(import_module(f"{__name__}.{module}"), function))
    return app


def require_libraries() -> None:
    """Require the Python packages that `hpcrun.data` imports.

    Raises:
        HpcrunError: A library is not installed.
    """
    try:
        import google.protobuf  # noqa: F401
        import google_crc32c  # noqa: F401
        import PIL  # noqa: F401
    except ImportError as error:
        raise HpcrunError(
            f"hpcrun data needs Python packages that are not installed here: {error.name}",
            hint="pip install 'hpcrun-slurm[data]'",
        ) from None
