"""``hpcrun site show``: print the merged site file of a site."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from hpcrun.cli import output
from hpcrun.cli.parameters import Json, Site  # noqa: TC001 - Typer reads annotations
from hpcrun.errors import sanitize


def show(
    name: Site = None,
    origin: Annotated[bool, typer.Option("--origin", help="Show the file and line of each value.")] = False,
    as_json: Json = False,
) -> None:
    """Show a site as one file, merged from the files of all layers.

    --json also prints the defaults of keys that no file sets.

    \b
    Examples:
      hpcrun site show styx
      hpcrun site show styx --origin
      hpcrun site show --json
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.doctor import benchmark_records
    from hpcrun.secrets import mask_value
    from hpcrun.sites import loader, project, toml

    loaded_site = loader.load_selected_site(name, include_unallowed=True)
    for line in project.project_warnings():
        output.message(f"WARNING: NOT ALLOWED: {line}")
    values = {key: mask_value(value, key[-1]) for key, value in loaded_site.explicit_values().items()}
    origins = {key: str(loaded_site.find_origin(key)) for key in values} if origin else {}
    if as_json:
        site = mask_value(asdict(loaded_site.site))
        origins_by_name = {toml.format_key(*key): origin_text for key, origin_text in origins.items()}
        output.value({"site": site, "origin": origins_by_name} if origin else site)
        return
    print(
        sanitize(f"# site {loaded_site.site.name} ({loaded_site.chosen_by})\n{toml.format_document(values, origins)}"),
        end="",
    )
    if last_test := benchmark_records.describe_last_test(loaded_site):
        output.message(
            f"last tested {last_test}; hpcrun site test {name or ''} --history lists all tests".replace("  ", " ")
        )
