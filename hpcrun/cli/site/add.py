"""``hpcrun site add`` and ``hpcrun site remove``: add or remove a layer of site files."""

from __future__ import annotations

from typing import Annotated

import typer

from hpcrun.cli import completion, output
from hpcrun.cli.site.review import confirm, show_change

SkipConfirmation = Annotated[bool, typer.Option("-y", "--yes", help="Skip the confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the changes, and apply none.")]


def add(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="URL of a git repository, or a folder.", show_default=False)
    ],
    ref: Annotated[
        str | None, typer.Option("--ref", metavar="REF", help="Tag, branch or commit; default: the default branch.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The layer's name; default: the source's last part.")
    ] = None,
    dry_run: DryRun = False,
    yes: SkipConfirmation = False,
) -> None:
    """Add the site files and templates that a lab shares, as a layer.

    A git repository is copied, and only `hpcrun site update` changes the copy; a folder is used in place. All files are
    shown first, with the warnings of hpcrun site check, because their lines run as you.

    \b
    Examples:
      hpcrun site add https://gitlab.example.org/lab/hpcrun-sites.git --ref v1.2
      hpcrun site add git@github.com:lab/hpcrun-sites --name lab
      hpcrun site add /shared/lab/sites
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.sites import layers, trust

    with layers.stage_new_layer(source, ref, name) as change:
        files = show_change(change)
        if dry_run:
            output.message("nothing was added: this was a dry run")
            return
        version = f" {change.version}" if change.version else ""
        confirm(f"Use layer {change.layer.name}{version}?", yes=yes, decline_message="nothing was added")
        layers.apply_change(change)
        if not change.version:
            trust.allow_files(source for source in files.values() if trust.refusal_reason(source))
    sites = ", ".join(file.removesuffix(".toml") for file in files if "/" not in file) or "templates only"
    output.message(f"added layer {change.layer.name}{version}: {sites}")


def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The layer.", autocompletion=completion.layers)],
) -> None:
    """Remove a layer that site add added.

    \b
    Examples:
      hpcrun site remove hpcrun-sites
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.sites import impact, layers

    broken_sites = impact.find_broken_sites(layers.find_layer(name).name, None)
    layer = layers.remove_layer(name)
    output.message(f"removed layer {name}; {layer.url or layer.folder} is unchanged")
    for line in broken_sites:
        output.message(f"WARNING: does not work any more: {line}")
