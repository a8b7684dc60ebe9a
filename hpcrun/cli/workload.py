"""``hpcrun workload``: list, show and copy the workloads that come with hpcrun."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hpcrun.cli import output
from hpcrun.cli.help_page import Command
from hpcrun.cli.parameters import Json  # noqa: TC001 - Typer reads the annotations


def group(_argv: list[str]) -> typer.Typer:
    """Return the Typer app of ``hpcrun workload``."""
    app = typer.Typer(
        no_args_is_help=True,
        help="List, show and copy the workloads that come with hpcrun.\n\n\b\n"
        "Examples:\n  hpcrun workload list\n  hpcrun workload show lenet5\n  hpcrun workload new mynet --from resnet50",
    )
    app.command("list", cls=Command)(list_workloads)
    app.command("show", cls=Command)(show)
    app.command("new", cls=Command)(new)
    return app


def list_workloads(as_json: Json = False) -> None:
    """List the bundled workloads.

    \b
    Examples:
      hpcrun workload list
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun import workload

    rows = [(name, workload.find_workload(name)[0].description) for name in workload.bundled_names()]
    if as_json:
        output.value([{"name": name, "description": text} for name, text in rows])
    else:
        output.table(("workload", "description"), rows)


def show(
    name: Annotated[str, typer.Argument(metavar="WORKLOAD", help="A bundled workload, or a workload folder.")],
    as_json: Json = False,
) -> None:
    """Show a workload: its options, default resources, and folder.

    \b
    Examples:
      hpcrun workload show lenet5
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun import workload
    from hpcrun.declared_options import format_flags

    program, _ = workload.find_workload(name)
    resources = program.resources.explicit()
    if as_json:
        output.value({
            "name": program.name, "description": program.description, "folder": str(program.folder),
            "resources": resources, "options": program.options,
        })  # fmt: skip
        return
    output.show(f"{program.name}: {program.description}")
    output.table(
        ("option (after --)", "default", "meaning"),
        [
            (format_flags(*option), option[1].get("default"), _describe_option(option[1]))
            for option in (program.options or {}).items()
        ],
        max_lines=None,
    )
    resource_text = " ".join(f"--{key.replace('_', '-')}={value}" for key, value in resources.items()) or "one rank"
    output.show(f"resources: {resource_text}\nfolder:    {program.folder}")


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The folder to create, in the current directory.")],
    source: Annotated[
        str, typer.Option("--from", metavar="WORKLOAD", help="A bundled workload, or a workload folder.")
    ] = "lenet5",
    as_json: Json = False,
) -> None:
    """Copy a workload, as a starting point for your own.

    \b
    Examples:
      hpcrun workload new mynet --from resnet50
      hpcrun submit ./mynet --dry-run
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from pathlib import Path

    from hpcrun import workload

    folder = workload.copy_folder(name, source, Path.cwd())
    files = sorted(file.name for file in folder.iterdir())
    if as_json:
        output.value({"name": name, "folder": str(folder), "files": files})
        return
    output.show(f"{folder}: {', '.join(files)}\nnext: edit them, then hpcrun submit ./{name}")


def _describe_option(declaration: dict[str, Any]) -> str:
    """Return the choices and the help text of an option."""
    choices = ", ".join(map(str, declaration.get("choices", ())))
    return "; ".join(filter(None, [choices, declaration.get("help")]))
