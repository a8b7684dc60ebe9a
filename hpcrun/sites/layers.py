"""Layers of site files that somebody added: the list of them, and changes that are shown before they are made."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.errors import HpcrunError, closest_match
from hpcrun.sites import loader, repositories

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hpcrun.sites.loader import Found
    from hpcrun.sites.repositories import Version

KEPT_SECONDS = 3600.0
"""So long a version stays after it was replaced, for commands that still read it."""


@dataclass(frozen=True)
class Layer:
    """An added layer.

    Attributes:
        name: Its name.
        folder: The folder, where it is one that is used in place.
        url: The git repository that it is copied from, else.
        ref: The branch, tag or commit that is followed; None for the default branch.
    """

    name: str
    folder: str | None = None
    url: str | None = None
    ref: str | None = None

    @property
    def content(self) -> Path | None:
        """The folder with its files; None where its copy is gone."""
        return paths.layer_folder(asdict(self))


@dataclass(frozen=True)
class Change:
    """A layer as it would be; nothing is changed before `apply`.

    Attributes:
        layer: The layer.
        fresh: Whether it is to be added.
        old: The folder that is in use; None where there is none.
        new: The folder that would be.
        version: The new version, of a git repository.
        stage: Where the new copy lies until then.
        sites: The sites in `new`, where it is not in use yet.
    """

    layer: Layer
    fresh: bool
    old: Path | None
    new: Path
    version: Version | None = None
    stage: Path | None = None
    sites: tuple[Found, ...] = ()


def every() -> list[Layer]:
    """Return the added layers, the first winning."""
    return [Layer(one["name"], one.get("folder"), one.get("url"), one.get("ref")) for one in paths.added_layers()]


def one(name: str) -> Layer:
    """Return an added layer.

    Raises:
        HpcrunError: There is none of this name.
    """
    known = {layer.name: layer for layer in every()}
    if name in known:
        return known[name]
    like = closest_match(name, list(known))
    hint = f"did you mean {like}?" if like else f"added: {', '.join(known)}" if known else "hpcrun site add adds one"
    raise HpcrunError(f"there is no added layer {name!r}", hint=hint)


@contextmanager
def new(source: str, ref: str | None, name: str | None) -> Iterator[Change]:
    """Fetch and check a layer that is to be added.

    Args:
        source: A folder, or a git repository's address.
        ref: The branch, tag or commit of the repository; None for its default branch.
        name: The layer's name; None to take it from the source.

    Raises:
        HpcrunError: It cannot be fetched, its site files are not valid, or there is a layer of this name.
    """
    git = repositories.is_url(source)
    name = name or re.sub(r"\.git$", "", re.split(r"[/:]", source.rstrip("/"))[-1])
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}", name):
        raise HpcrunError(f"{name!r} cannot be a layer's name", hint="--name NAME, of letters, digits, ., _ and -")
    _check_new(name)
    if git:
        with _stage() as stage:
            yield _fetched(Layer(name, url=source, ref=ref), stage, fresh=True)
        return
    if ref:
        raise HpcrunError(f"--ref={ref} is for git repositories", hint=f"to copy from one: file://{source}")
    folder = Path(paths.expand_user(source)).absolute()
    if not folder.is_dir():
        raise HpcrunError(f"there is no folder {source}", hint="a folder with site files, or a repository's address")
    if not loader.files([("", folder)]) and not (folder / "templates").is_dir():
        what = f"{folder} has no site files: no *.toml, and no templates/"
        raise HpcrunError(what, hint=f"is it a git repository? hpcrun site add file://{folder}")
    yield Change(Layer(name, folder=str(folder)), True, None, folder, sites=_sites(folder, name))


@contextmanager
def newer(layer: Layer, ref: str | None) -> Iterator[Change]:
    """Fetch and check the newest version of a layer; what is in use stays so, whatever fails.

    Args:
        layer: A layer that is a copy of a git repository.
        ref: The branch, tag or commit that it is to follow from now on; None for the one it follows.

    Raises:
        HpcrunError: It cannot be fetched, or its site files are not valid.
    """
    with _stage() as stage:
        change = _fetched(replace(layer, ref=layer.ref if ref is None else ref), stage, fresh=False)
        with alone():  # also what is not applied is known from now on: hpcrun site list tells how far behind it is
            _put(stage / "repository", repositories.home(layer.name) / "repository")
        yield change


def apply(change: Change) -> None:
    """Put a change into use, in one step for all who read meanwhile.

    Raises:
        HpcrunError: Another command has changed the same layer since this change was made.
    """
    layer = change.layer
    with alone():
        known = every()
        if change.fresh:
            _check_new(layer.name)
            known.append(layer)
        elif layer.name not in {one.name for one in known} or layer.content != change.old:
            raise HpcrunError(f"layer {layer.name} was changed by another command meanwhile", hint="do it again")
        known = [layer if one.name == layer.name else one for one in known]
        if change.version and change.stage:
            home = repositories.home(layer.name)
            home.mkdir(parents=True, exist_ok=True)
            if change.fresh:
                _put(change.stage / "repository", home / "repository")
            if (home / change.new.name).is_dir():
                repositories.note(home / change.new.name, change.version)
            else:
                change.new.rename(home / change.new.name)
            _point(home / "current", change.new.name)
            _forget(home, keep=change.new.name)
        _record(known)


def remove(name: str) -> Layer:
    """Remove a layer from the list.

    The version in use goes with a later command: some may still read it.

    Raises:
        HpcrunError: There is none of this name.
    """
    with alone():
        layer = one(name)
        _record([other for other in every() if other.name != name])
        if layer.url:
            with suppress(OSError):
                _retire(repositories.home(name) / "current").unlink()
            shutil.rmtree(repositories.home(name) / "repository", ignore_errors=True)
    return layer


@contextmanager
def alone() -> Iterator[None]:
    """Let no other command of this user's change layers meanwhile."""
    folder = paths.user_data_folder("sites")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as held:
        with suppress(OSError):  # some shared file systems have no locks
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _fetched(layer: Layer, stage: Path, *, fresh: bool) -> Change:
    if layer.ref is not None:
        repositories.check_ref(layer.ref)
    assert layer.url  # noqa: S101 - for mypy: only copies are fetched
    repositories.fetch(layer.url, stage / "repository")
    version = repositories.version(stage / "repository", layer.ref)
    folder = stage / version.short
    repositories.extract(stage / "repository", version, folder)
    sites = _sites(folder, layer.name)
    return Change(layer, fresh, None if fresh else layer.content, folder, version, stage, sites)


def _sites(folder: Path, name: str) -> tuple[Found, ...]:
    from hpcrun.sites.lint import layer_checks

    return tuple(layer_checks.sites(folder, name))


def _check_new(name: str) -> None:
    if name in {layer.name for layer in every()}:
        hint = f"hpcrun site update {name}, or choose another name with --name"
        raise HpcrunError(f"there is a layer {name} already", hint=hint)


@contextmanager
def _stage() -> Iterator[Path]:
    folder = paths.user_data_folder("sites")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _sweep(folder.glob(".new-*"))  # of commands that were killed
    _sweep(home for home in folder.glob("*") if not (home / "current").is_symlink())
    stage = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _put(new: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(place, ignore_errors=True)
    new.rename(place)


def _point(link: Path, to: str) -> None:
    part = link.with_name(f".{link.name}.{os.uname().nodename}.{os.getpid()}")
    part.unlink(missing_ok=True)
    part.symlink_to(to)
    part.replace(_retire(link))


def _retire(link: Path) -> Path:
    """Note that from now on the version that a link names is an old one; return the link."""
    with suppress(OSError):
        os.utime(link.parent / link.readlink())
    return link


def _forget(home: Path, keep: str) -> None:
    _sweep(one for one in home.glob("*") if (one / ".version.json").is_file() and one.name not in {keep, "current"})


def _sweep(folders: Iterable[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            if folder.stat().st_mtime < time.time() - KEPT_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def _record(layers: list[Layer]) -> None:
    file = paths.user_config_folder() / "layers.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    told = [{key: value for key, value in asdict(layer).items() if value is not None} for layer in layers]
    paths.write_atomically(file, json.dumps({"layers": told}, indent=2).encode() + b"\n")
