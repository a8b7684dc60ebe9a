"""``hpcrun site update``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli import completion, output
from hpcrun.cli.site.add import DryRun, Yes  # noqa: TC001 - Typer reads annotations
from hpcrun.cli.site.showing import confirm, show_change
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from hpcrun.sites.layers import Change, Layer
    from hpcrun.sites.repositories import Version


def update(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="The layer; default: all.", autocompletion=completion.layers),
    ] = None,
    ref: Annotated[
        str | None, typer.Option("--ref", metavar="REF", help="Follow this tag, branch or commit from now on.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Fetch the layers that were added, and use what is new.

    What has changed is shown first, with the warnings of hpcrun site check on
    it. Where a repository cannot be reached, or
    what is new in it is not valid, the copy in use stays; also where --yes
    says yes to everything, and the tag that is followed has moved.

    \b
    Examples:
      hpcrun site update
      hpcrun site update --dry-run
      hpcrun site update hpcrun-sites --ref v1.3
      hpcrun site update --yes
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.sites import layers

    if ref and not name:
        raise HpcrunError(f"--ref={ref} is for one layer", hint="hpcrun site update NAME --ref REF")
    chosen = [layers.find_layer(name)] if name else layers.list_layers()
    if not chosen:
        output.message("there is no layer to update; hpcrun site add adds one")
    faults, refusals = [], []
    for layer in chosen:
        try:
            _update(layer, ref, dry_run=dry_run, yes=yes)
        except HpcrunError as error:
            faults.append(_kept(layer, error))
        except typer.Exit as no:
            refusals.append(no)
    if faults:
        raise HpcrunError("\n".join(map(str, faults)), exit_code=max(fault.exit_code for fault in faults))
    if refusals:
        raise refusals[0]


def _update(layer: Layer, ref: str | None, *, dry_run: bool, yes: bool) -> None:
    from hpcrun.sites import layers, repositories

    if not layer.url:
        output.message(f"{layer.name}: {layer.folder} is used in place; hpcrun site list tells what must be allowed")
        return
    with layers.stage_update(layer, ref) as change:
        assert change.version  # noqa: S101 - for mypy: it is a copy
        before = repositories.read_version(change.old_folder) if change.old_folder else None
        if before and before.commit == change.version.commit and layer.ref == change.layer.ref:
            output.message(f"{layer.name}: {change.version} is what there is" + _newer_tag(change))
            return
        show_change(change)
        moved = before and ref is None and _moved(before, change)
        if moved and yes and not dry_run:
            hint = f"hpcrun site update {layer.name} --ref {layer.ref} --yes takes it as it is now"
            raise HpcrunError(moved, hint=hint, exit_code=1)
        if moved:
            output.message(f"WARNING: {layer.name}: {moved}")
        _warn(change, yes=yes and not dry_run)
        if dry_run:
            output.message(f"{layer.name}: {before or 'nothing'} stays in use: this was a dry run")
            return
        was = f", now {before}" if before else ""
        question = f"Use {change.version} of layer {layer.name}{was}?"
        confirm(question, yes=yes, otherwise=f"{layer.name}: {before or 'nothing'} stays in use")
        layers.apply_change(change)
    output.message(f"{layer.name}: {change.version} is used from now on")


def _moved(before: Version, change: Change) -> str | None:
    """Tell that the tag that is followed is another commit's now, None where it is not: tags are thought to stay."""
    version, ref = change.version, change.layer.ref
    if not version or ref is None or version.tag != ref or version.commit == before.commit:
        return None
    return f"tag {ref} has moved: was {before.commit[:8]} ({before.date}), is now {version.commit[:8]} ({version.date})"


def _warn(change: Change, *, yes: bool) -> None:
    """Tell which sites of other layers would stop working; with nobody to ask, that is too much.

    Raises:
        HpcrunError: Some would, and nothing is asked.
    """
    from hpcrun.sites import impact

    broken = impact.find_broken_sites(change.layer.name, change.new_folder)
    if broken and yes:
        what = f"{change.version} would break sites of other layers:\n" + "\n".join(broken)
        hint = f"mend these, or see for yourself: hpcrun site update {change.layer.name}, without --yes"
        raise HpcrunError(what, hint=hint, exit_code=1)
    for line in broken:
        output.message(f"WARNING: will not work any more: {line}")


def _newer_tag(change: Change) -> str:
    """Tell of a higher tag, to one who follows a tag."""
    from hpcrun.sites import repositories

    newest = repositories.newest_tag(repositories.layer_home(change.layer.name) / "repository")
    followed = change.version and change.layer.ref == change.version.tag
    if not followed or newest in {None, change.layer.ref}:
        return ""
    return f" of tag {change.layer.ref}; hpcrun site update {change.layer.name} --ref {newest} takes the newest tag"


def _kept(layer: Layer, error: HpcrunError) -> HpcrunError:
    """Say what stays in use after a fault."""
    from hpcrun.sites import repositories

    folder = layer.content_folder
    version = repositories.read_version(folder) if folder else None
    apart = "\n" if "\n" in error.message else "; "
    stays = f"{apart}{version} stays in use" if version else ""
    named = f"layer {layer.name}"
    what = error.message if error.message.startswith(f"{named} ") else f"{named}: {error.message}"
    return HpcrunError(what + stays, hint=error.hint, exit_code=error.exit_code)
