"""``hpcrun site``: what is known about clusters."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from hpcrun.cli import completion, output
from hpcrun.errors import HpcrunError

app = typer.Typer(
    no_args_is_help=True,
    help="The clusters that hpcrun knows.\n\n\b\nExamples:\n  hpcrun site list\n  hpcrun site show styx",
)
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value.")]


@app.command("list")
def list_sites(as_json: Json = False) -> None:
    """List the sites, where each comes from, and which one is used here.

    \b
    Examples:
      hpcrun site list
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.sites import find

    here = find.detect()
    rows: list[dict[str, Any]] = []
    for name, files in sorted(find.files().items()):
        try:
            description = find.load(name).site.description
        except HpcrunError as error:
            description = f"INVALID: {error.message.splitlines()[0]}"
        rows.append({"name": name, "here": name == here.site.name, "description": description, "files": files})
    if as_json:
        output.value(rows)
        return
    output.table(
        ("site", "here", "description", "file"),
        [(row["name"], "*" if row["here"] else "", row["description"], row["files"][-1]) for row in rows],
    )
    output.message(f"used here: {here.site.name} ({here.chosen_by})")


@app.command()
def show(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[SITE]", help="Site, or a site file; default: the one used here.", autocompletion=completion.sites
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a site as it is after all layers, each value with the file and line it came from.

    \b
    Examples:
      hpcrun site show styx
      hpcrun site show --json
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.sites import find

    found = find.detect(name)
    if as_json:
        output.value(asdict(found.site))
        return
    rows = []
    for key in sorted(found.origins):
        value: Any = asdict(found.site)
        for part in key:
            value = value[part]
        if not isinstance(value, dict):
            shown = ", ".join(map(str, value)) if isinstance(value, tuple) else value
            rows.append((".".join(key), shown, found.origin(key)))
    output.table(("key", "value", "from"), rows)


@app.command()
def check(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[SITE]", help="Site, or a site file; default: all.", autocompletion=completion.sites),
    ] = None,
) -> None:
    """Check site files, anywhere and without any cluster.

    \b
    Examples:
      hpcrun site check
      hpcrun site check ./mycluster.toml
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.sites import find

    faults = []
    names = [name] if name else sorted(find.files())
    for one in names:
        try:
            find.load(one)
        except HpcrunError as error:
            faults.append(str(error))
    if faults:
        raise HpcrunError("\n".join(faults), exit_code=1)
    output.message(f"{', '.join(names)}: valid")


@app.command()
def schema() -> None:
    """Print the JSON Schema of site files, for editors.

    \b
    Examples:
      hpcrun site schema > hpcrun-site.schema.json
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.sites.schema import file_schema

    output.value(file_schema())
