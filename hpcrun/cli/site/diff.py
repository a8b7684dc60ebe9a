"""``hpcrun site diff``: show how two sites differ."""

from __future__ import annotations

from typing import Annotated

import typer

from hpcrun.cli import completion, output
from hpcrun.cli.parameters import Json  # noqa: TC001 - Typer reads annotations

_SITE_HELP = "A site, or a site file."


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=_SITE_HELP, autocompletion=completion.sites)],
    b: Annotated[str, typer.Argument(metavar="B", help=_SITE_HELP, autocompletion=completion.sites)],
    as_json: Json = False,
) -> None:
    """Show how two sites differ, and where each value comes from.

    The exit code is that of diff: 0 if the sites are equal, 1 if they differ.

    \b
    Examples:
      hpcrun site diff slurm mycluster
      hpcrun site diff mycluster ./mycluster.toml
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.secrets import mask_value
    from hpcrun.sites import loader, toml
    from hpcrun.sites.differences import find_differences

    differences = find_differences(
        loader.load_site(a, include_unallowed=True), loader.load_site(b, include_unallowed=True)
    )
    if as_json:
        output.value(
            [
                {"key": toml.format_key(*difference.key)}
                | {
                    side: {"value": mask_value(value, difference.key[-1]), "origin": origin}
                    for side, value, origin in zip("ab", difference.values, difference.origins, strict=True)
                }
                for difference in differences
            ]
        )
    elif differences:
        output.show(f"--- {a}\n+++ {b}")
        for difference in differences:
            for sign, value, origin in zip("-+", difference.values, difference.origins, strict=True):
                if value is not None:
                    value_text = toml.literal(mask_value(value, difference.key[-1]))
                    output.show(f"{sign}{toml.format_key(*difference.key)} = {value_text}  # {origin or 'default'}")
    if differences:
        raise typer.Exit(1)
    output.message(f"{a} and {b} are alike")
