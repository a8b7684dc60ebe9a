"""``hpcrun site``: commands on site files."""

from __future__ import annotations

from importlib import import_module

import typer

from hpcrun.cli.help_page import Command, Group

COMMANDS = {
    "init": ("init", "init"),
    "list": ("listing", "list_sites"),
    "show": ("show", "show"),
    "diff": ("diff", "diff"),
    "check": ("check", "check"),
    "schema": ("schema", "schema"),
    "test": ("test", "test"),
    "add": ("add", "add"),
    "update": ("update", "update"),
    "remove": ("add", "remove"),
    "allow": ("allow", "allow"),
}
"""The module of each command in this folder, and its function."""


def group(argv: list[str]) -> typer.Typer:
    """Return the Typer app of ``hpcrun site`` with the command that the arguments name, or with all commands.

    Args:
        argv: The arguments after ``site``.
    """
    app = typer.Typer(
        cls=Group,
        no_args_is_help=True,
        help="List, write, check and share the site files of clusters.\n\n\b\n"
        "Examples:\n  hpcrun site list\n  hpcrun site init mycluster\n  hpcrun site show styx",
    )
    for name in argv[:1] if argv and argv[0] in COMMANDS else COMMANDS:
        module, function = COMMANDS[name]
        app.command(name, cls=Command)(getattr(import_module(f"{__name__}.{module}"), function))
    return app
