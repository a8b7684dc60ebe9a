"""``hpcrun site list``: list the sites."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli import output
from hpcrun.cli.parameters import Json  # noqa: TC001 - Typer reads annotations
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Iterator


def list_sites(
    layers: Annotated[
        bool, typer.Option("--layers", help="List the folders of site files, with versions of added layers.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the sites and their files, and mark the site used here.

    \b
    Examples:
      hpcrun site list
      hpcrun site list --layers
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    if layers:
        from hpcrun.cli.site.layer_listing import show_layers

        show_layers(as_json=as_json)
        return
    from hpcrun import paths
    from hpcrun.doctor import benchmark_records
    from hpcrun.sites import loader, trust

    selected_name, chosen_by = loader.select_site()
    rows: list[dict[str, Any]] = []
    for name, files in sorted(loader.list_site_files(paths.config_layers()).items()):
        test_text, refusals = "", list[str]()
        try:
            loaded_site = loader.load_site(name, include_unallowed=True)
            description, test_text = loaded_site.site.description, benchmark_records.describe_last_test(loaded_site)
            refusals = [
                f"{source.file}: {reason}" for source in loaded_site.sources if (reason := trust.refusal_reason(source))
            ]
        except HpcrunError as error:
            description = f"INVALID: {error.message.splitlines()[0]}"
        facts = {"description": description, "tested": test_text, "files": files, "not_allowed": refusals}
        rows.append({"name": name, "here": name == selected_name, **facts})
    if as_json:
        output.value(rows)
    else:
        _show(rows)
        output.message(f"used here: {selected_name} ({chosen_by})")
    loader.load_selected_site()  # load the site used here, because its errors must be raised


def _show(rows: list[dict[str, Any]]) -> None:
    from hpcrun import paths

    output.table(
        ("site", "here", "description", "last tested", "file"),
        [(row["name"], "*" * row["here"], _format_description(row), row["tested"], row["files"][-1]) for row in rows],
    )
    for row in rows:
        for reason in row["not_allowed"]:
            output.message(f"{reason}: hpcrun site allow {row['name']}")
    for line in (*_find_unused_templates(), *paths.missing_layers()):
        output.message(line)


def _format_description(row: dict[str, Any]) -> str:
    return f"NOT ALLOWED: {row['description']}" if row["not_allowed"] else str(row["description"])


def _find_unused_templates() -> Iterator[str]:
    """Yield a message for each unused template; templates affect jobs of all sites."""
    from hpcrun import paths
    from hpcrun.sites import layer_files, trust

    for file in (file for _, folder in paths.config_layers()[1:] for file in layer_files.list_templates(folder)):
        try:
            reason = trust.refusal_reason(layer_files.read_source(file))
        except HpcrunError as error:
            yield f"template {error.message}"
        else:
            if reason:
                yield layer_files.escape_invisible(f"template {file}: {reason}: hpcrun site allow {file}")
