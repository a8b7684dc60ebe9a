"""``hpcrun site schema``."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - Typer reads annotations
from typing import Annotated

import typer

from hpcrun.cli import output


def schema(
    file: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write it there, not to stdout.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="A page of all keys, for people.")] = False,
) -> None:
    """Print the JSON Schema of site files, for editors.

    They complete and check keys and values by it. A site file's
    first line `#:schema URL-OR-FILE` names it, for Taplo and Even Better TOML.

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
        output.message(f"{file} is written")
    else:
        print(text, end="")
