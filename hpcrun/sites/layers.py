"""Added layers of site files: the list of layers, and changes that the user reviews before they are applied."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import paths, permissions
from hpcrun.errors import HpcrunError, closest_match
from hpcrun.frozen import frozen
from hpcrun.sites import loader, repositories

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hpcrun.sites.loader import LoadedSite
    from hpcrun.sites.repositories import Version

RETENTION_SECONDS = 3600.0
"""Time in seconds for which a replaced version is kept, for commands that still read it."""


@frozen
class Layer:
    """An added layer.

    Attributes:
        name: The layer's name.
        folder: The folder of a layer that is used in place.
        url: The git repository of a layer that is copied.
        ref: The branch, tag or commit to follow; None for the default branch.
    """

    name: str
    folder: str | None = None
    url: str | None = None
    ref: str | None = None

    @property
    def content_folder(self) -> Path | None:
        """The folder with the layer's files; None if the copy is missing."""
        return paths.layer_folder(asdict(self))


@frozen
class Change:
    """A pending change of a layer, which `apply_change` applies.

    Attributes:
        layer: The layer after the change.
        is_new: Whether the change adds the layer.
        old_folder: The folder in use; None for a new layer.
        new_folder: The folder after the change.
        version: The new version of a git repository.
        staging_folder: The folder that holds the new copy until the change is applied; None for a layer used in place.
        sites: The sites in the new folder.
    """

    layer: Layer
    is_new: bool
    old_folder: Path | None
    new_folder: Path
    version: Version | None = None
    staging_folder: Path | None = None
    sites: tuple[LoadedSite, ...] = ()


def list_layers() -> list[Layer]:
    """Return the added layers, highest precedence first."""
    return [Layer(one["name"], one.get("folder"), one.get("url"), one.get("ref")) for one in paths.added_layers()]


def find_layer(name: str) -> Layer:
    """Return the added layer with a name.

    Raises:
        HpcrunError: No added layer has this name.
    """
    layers_by_name = {layer.name: layer for layer in list_layers()}
    if name in layers_by_name:
        return layers_by_name[name]
    closest_name = closest_match(name, list(layers_by_name))
    hint = (
        f"did you mean {closest_name}?"
        if closest_name
        else f"added: {', '.join(layers_by_name)}"
        if layers_by_name
        else "hpcrun site add adds one"
    )
    raise HpcrunError(f"there is no added layer {name!r}", hint=hint)


@contextmanager
def stage_new_layer(source: str, ref: str | None, name: str | None) -> Iterator[Change]:
    """Fetch and check a new layer.

    Args:
        source: A folder, or the URL of a git repository.
        ref: The branch, tag or commit of the repository; None for its default branch.
        name: The layer's name; None to take it from the source.

    Raises:
        HpcrunError: The source cannot be fetched, its site files are not valid, or the name is in use.
    """
    is_repository = repositories.is_repository_url(source)
    name = name or re.sub(r"\.git$", "", re.split(r"[/:]", source.rstrip("/"))[-1])
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}", name):
        raise HpcrunError(
            f"{name!r} is not a valid name of a layer", hint="--name NAME, of letters, digits, ., _ and -"
        )
    _require_new_name(name)
    if is_repository:
        with _create_staging_folder() as staging_folder:
            yield _fetch_layer_change(Layer(name, url=source, ref=ref), staging_folder, is_new=True)
        return
    if ref:
        raise HpcrunError(f"--ref={ref} is for git repositories", hint=f"to copy from one: file://{source}")
    folder = Path(paths.expand_user(source)).absolute()
    if not folder.is_dir():
        raise HpcrunError(f"there is no folder {source}", hint="a folder with site files, or a repository's address")
    if not loader.list_site_files([("", folder)]) and not (folder / "templates").is_dir():
        message = f"{folder} has no site files: no *.toml, and no templates/"
        raise HpcrunError(message, hint=f"is it a git repository? hpcrun site add file://{folder}")
    yield Change(Layer(name, folder=str(folder)), True, None, folder, sites=_load_layer_sites(folder, name))


@contextmanager
def stage_update(layer: Layer, ref: str | None) -> Iterator[Change]:
    """Fetch and check the newest version of a layer; after an error, the version in use stays.

    Args:
        layer: A layer that is a copy of a git repository.
        ref: The branch, tag or commit to follow from now on; None to keep the current ref.

    Raises:
        HpcrunError: The repository cannot be fetched, or its site files are not valid.
    """
    with _create_staging_folder() as staging_folder:
        change = _fetch_layer_change(
            replace(layer, ref=layer.ref if ref is None else ref), staging_folder, is_new=False
        )
        # keep the fetched commits without applying them: hpcrun site list shows how far behind the layer is
        with lock_layers():
            _move_into_place(staging_folder / "repository", repositories.added_layer_folder(layer.name) / "repository")
        yield change


def apply_change(change: Change) -> None:
    """Apply a change atomically for concurrent readers.

    Raises:
        HpcrunError: Another command has changed the layer since this change was created.
    """
    layer = change.layer
    with lock_layers():
        layers = list_layers()
        if change.is_new:
            _require_new_name(layer.name)
            layers.append(layer)
        elif layer.name not in {one.name for one in layers} or layer.content_folder != change.old_folder:
            raise HpcrunError(f"layer {layer.name} was changed by another command", hint="repeat the command")
        layers = [layer if one.name == layer.name else one for one in layers]
        if change.version and change.staging_folder:
            layer_folder = repositories.added_layer_folder(layer.name)
            permissions.make_own_folder(layer_folder)
            if change.is_new:
                _move_into_place(change.staging_folder / "repository", layer_folder / "repository")
            if (layer_folder / change.new_folder.name).is_dir():
                repositories.write_version(layer_folder / change.new_folder.name, change.version)
            else:
                change.new_folder.rename(layer_folder / change.new_folder.name)
            _switch_link(layer_folder / "current", change.new_folder.name)
            _remove_old_versions(layer_folder, kept_name=change.new_folder.name)
        _write_layers(layers)


def remove_layer(name: str) -> Layer:
    """Remove a layer from the list.

    A later command deletes the version in use, because other commands may still read it.

    Raises:
        HpcrunError: No added layer has this name.
    """
    with lock_layers():
        layer = find_layer(name)
        _write_layers([other for other in list_layers() if other.name != name])
        if layer.url:
            with suppress(OSError):
                _mark_retired(repositories.added_layer_folder(name) / "current").unlink()
            shutil.rmtree(repositories.added_layer_folder(name) / "repository", ignore_errors=True)
    return layer


@contextmanager
def lock_layers() -> Iterator[None]:
    """Lock the list of layers against changes by other commands of this user."""
    folder = paths.user_data_folder("sites")
    permissions.make_own_folder(folder, is_private=True)
    with open(folder / ".lock", "w", opener=permissions.opener) as lock_file:
        with suppress(OSError):  # some shared file systems have no locks
            fcntl.flock(lock_file, fcntl.LOCK_EX)
        yield


def _fetch_layer_change(layer: Layer, staging_folder: Path, *, is_new: bool) -> Change:
    if layer.ref is not None:
        repositories.require_ref_name(layer.ref)
    assert layer.url  # noqa: S101 - for mypy: only layers with a URL are fetched
    repositories.fetch(layer.url, staging_folder / "repository")
    version = repositories.resolve_version(staging_folder / "repository", layer.ref)
    folder = staging_folder / version.short_hash
    repositories.extract_layer_files(staging_folder / "repository", version, folder)
    sites = _load_layer_sites(folder, layer.name)
    return Change(layer, is_new, None if is_new else layer.content_folder, folder, version, staging_folder, sites)


def _load_layer_sites(folder: Path, name: str) -> tuple[LoadedSite, ...]:
    from hpcrun.sites.lint import layer_checks

    return tuple(layer_checks.load_layer_sites(folder, name))


def _require_new_name(name: str) -> None:
    if name in {layer.name for layer in list_layers()}:
        hint = f"hpcrun site update {name}, or choose another name with --name"
        raise HpcrunError(f"layer {name} exists already", hint=hint)


@contextmanager
def _create_staging_folder() -> Iterator[Path]:
    parent_folder = paths.user_data_folder("sites")
    permissions.make_own_folder(parent_folder, is_private=True)
    _remove_expired(parent_folder.glob(".new-*"))  # left by killed commands
    _remove_expired(folder for folder in parent_folder.glob("*") if not (folder / "current").is_symlink())
    staging_folder = Path(tempfile.mkdtemp(prefix=".new-", dir=parent_folder))
    try:
        yield staging_folder
    finally:
        shutil.rmtree(staging_folder, ignore_errors=True)


def _move_into_place(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    source.rename(target)


def _switch_link(link: Path, target: str) -> None:
    temporary_link = link.with_name(f".{link.name}.{os.uname().nodename}.{os.getpid()}")
    temporary_link.unlink(missing_ok=True)
    temporary_link.symlink_to(target)
    temporary_link.replace(_mark_retired(link))


def _mark_retired(link: Path) -> Path:
    """Start the retention time of the version to which a symbolic link points, and return the link."""
    with suppress(OSError):
        os.utime(link.parent / link.readlink())
    return link


def _remove_old_versions(layer_folder: Path, kept_name: str) -> None:
    _remove_expired(
        one
        for one in layer_folder.glob("*")
        if (one / ".version.json").is_file() and one.name not in {kept_name, "current"}
    )


def _remove_expired(folders: Iterable[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            if folder.stat().st_mtime < time.time() - RETENTION_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def _write_layers(layers: list[Layer]) -> None:
    file = paths.user_config_folder() / "layers.json"
    permissions.make_own_folder(file.parent)
    table = [{key: value for key, value in asdict(layer).items() if value is not None} for layer in layers]
    paths.write_atomically(file, json.dumps({"layers": table}, indent=2).encode() + b"\n")
