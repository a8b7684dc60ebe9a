"""``hpcrun site update``: fetch new versions of added layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli import completion, output
from hpcrun.cli.site.add import DryRun, SkipConfirmation  # noqa: TC001 - Typer reads annotations
from hpcrun.cli.site.review import confirm, show_change
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
        str | None, typer.Option("--ref", metavar="REF", help="Tag, branch or commit to follow from now on.")
    ] = None,
    dry_run: DryRun = False,
    yes: SkipConfirmation = False,
) -> None:
    """Fetch new versions of added layers, and use them.

    The changes are shown first, with the warnings of hpcrun site check. hpcrun keeps its copy if the repository cannot
    be reached, if the new version is not valid, and with --yes also if the followed tag has moved.

    \b
    Examples:
      hpcrun site update
      hpcrun site update --dry-run
      hpcrun site update hpcrun-sites --ref v1.3
      hpcrun site update --yes
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.sites import layers

    if ref and not name:
        raise HpcrunError(f"--ref={ref} needs the name of one layer", hint="hpcrun site update NAME --ref REF")
    selected_layers = [layers.find_layer(name)] if name else layers.list_layers()
    if not selected_layers:
        output.message("there is no layer to update; hpcrun site add adds one")
    errors, refusals = [], []
    for layer in selected_layers:
        try:
            _update(layer, ref, dry_run=dry_run, yes=yes)
        except HpcrunError as error:
            errors.append(_add_version_in_use(layer, error))
        except typer.Exit as refusal:
            refusals.append(refusal)
    if errors:
        raise HpcrunError("\n".join(map(str, errors)), exit_code=max(error.exit_code for error in errors))
    if refusals:
        raise refusals[0]


def _update(layer: Layer, ref: str | None, *, dry_run: bool, yes: bool) -> None:
    from hpcrun.sites import layers, repositories

    if not layer.url:
        output.message(
            f"{layer.name}: {layer.folder} is used in place; hpcrun site list shows files that must be allowed"
        )
        return
    with layers.stage_update(layer, ref) as change:
        assert change.version  # noqa: S101 - for mypy: a copied layer has a version
        old_version = repositories.read_version(change.old_folder) if change.old_folder else None
        if old_version and old_version.commit == change.version.commit and layer.ref == change.layer.ref:
            output.message(f"{layer.name}: {change.version} is up to date" + _format_newer_tag(change))
            return
        show_change(change)
        moved_tag = old_version and ref is None and _format_moved_tag(old_version, change)
        if moved_tag and yes and not dry_run:
            hint = f"hpcrun site update {layer.name} --ref {layer.ref} --yes uses the moved tag"
            raise HpcrunError(moved_tag, hint=hint, exit_code=1)
        if moved_tag:
            output.message(f"WARNING: {layer.name}: {moved_tag}")
        _warn_of_broken_sites(change, yes=yes and not dry_run)
        if dry_run:
            output.message(f"{layer.name}: {old_version or 'nothing'} stays in use: this was a dry run")
            return
        old_version_text = f" instead of {old_version}" if old_version else ""
        question = f"Use {change.version} of layer {layer.name}{old_version_text}?"
        confirm(question, yes=yes, decline_message=f"{layer.name}: {old_version or 'nothing'} stays in use")
        layers.apply_change(change)
    output.message(f"{layer.name}: {change.version} is used from now on")


def _format_moved_tag(old_version: Version, change: Change) -> str | None:
    """Return a message if the followed tag now points to another commit, as a tag should not be moved; else None."""
    version, ref = change.version, change.layer.ref
    if not version or ref is None or version.tag != ref or version.commit == old_version.commit:
        return None
    old_text, new_text = (f"{item.commit[:8]} ({item.date})" for item in (old_version, version))
    return f"tag {ref} has moved: was {old_text}, is now {new_text}"


def _warn_of_broken_sites(change: Change, *, yes: bool) -> None:
    """Warn of sites in other layers that the change would break.

    Raises:
        HpcrunError: The change would break sites, and --yes skips the confirmation.
    """
    from hpcrun.sites import impact

    broken_sites = impact.find_broken_sites(change.layer.name, change.new_folder)
    if broken_sites and yes:
        message = f"{change.version} would break sites of other layers:\n" + "\n".join(broken_sites)
        hint = f"fix these sites, or review the update: hpcrun site update {change.layer.name}, without --yes"
        raise HpcrunError(message, hint=hint, exit_code=1)
    for line in broken_sites:
        output.message(f"WARNING: will not work any more: {line}")


def _format_newer_tag(change: Change) -> str:
    """Return a message about a newer tag, if the layer follows a tag; empty if there is none."""
    from hpcrun.sites import repositories

    newest_tag = repositories.newest_tag(repositories.added_layer_folder(change.layer.name) / "repository")
    follows_tag = change.version and change.layer.ref == change.version.tag
    if not follows_tag or newest_tag in {None, change.layer.ref}:
        return ""
    return f" of tag {change.layer.ref}; hpcrun site update {change.layer.name} --ref {newest_tag} uses the newest tag"


def _add_version_in_use(layer: Layer, error: HpcrunError) -> HpcrunError:
    """Add a note to an error: the version that stays in use."""
    from hpcrun.sites import repositories

    folder = layer.content_folder
    version = repositories.read_version(folder) if folder else None
    separator = "\n" if "\n" in error.message else "; "
    suffix = f"{separator}{version} stays in use" if version else ""
    prefix = f"layer {layer.name}"
    message = error.message if error.message.startswith(f"{prefix} ") else f"{prefix}: {error.message}"
    return HpcrunError(message + suffix, hint=error.hint, exit_code=error.exit_code)
