"""``hpcrun site schema``: print the JSON Schema of site files."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - Typer reads annotations
from typing import Annotated

import typer

from hpcrun.cli import output


def schema(
    file: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write to FILE instead of stdout.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown page of all keys instead.")] = False,
) -> None:
    """Print the JSON Schema of site files, for editors.

    Editors use the schema to complete and check keys and values. Taplo and Even Better TOML find the schema by the
    first line of a site file, `#:schema FILE-OR-URL`.

    \b
    Examples:
      hpcrun site schema --output site.schema.json
      hpcrun site schema --markdown
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    import json

    from hpcrun.sites.key_reference import render_page
    from hpcrun.sites.schema import site_file_schema

    text = render_page() if markdown else json.dumps(site_file_schema(), indent=2) + "\n"
    if file:
        file.write_text(text)
        output.message(f"wrote {file}")
    else:
        print(text, end="")
