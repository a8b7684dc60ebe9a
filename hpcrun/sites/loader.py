"""Finding a site: search path, layers, ``extends``, and the file and line that each value came from."""

from __future__ import annotations

import hashlib
import os
import shutil
import tomllib
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun import paths
from hpcrun.errors import HpcrunError, closest_match
from hpcrun.sites import project
from hpcrun.sites.detection import detect_site
from hpcrun.sites.line_numbers import Key, format_location
from hpcrun.sites.source import Source, file_state
from hpcrun.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.sites.model import Site


@dataclass(frozen=True)
class LoadedSite:
    """A site, and how it was found.

    Attributes:
        site: The validated site.
        chosen_by: What named it, such as ``--site``.
        origins: The file each value came from, by its key path.
        sources: All files that it was read from, as they were read.
    """

    site: Site
    chosen_by: str
    origins: dict[Key, Path]
    sources: tuple[Source, ...] = ()

    def find_origin(self, key: Key) -> str | None:
        """Return ``file:line`` of a value, None where it is the model's default."""
        file = self.origins.get(key)
        return format_location(file, key) if file else None

    def said(self) -> dict[Key, Any]:
        """Return what site files say: each value by its key, and an empty table where nothing is in it."""
        values, around = asdict(self.site), {key[:-1] for key in self.origins}
        found = {}
        for key in sorted(self.origins):
            value: Any = values
            for part in key:
                value = value[part]
            if key not in around:
                found[key] = {} if isinstance(value, dict) else value
        return found

    def list_values(self) -> list[tuple[str, Any, str | None]]:
        """Return what site files say: each value's key, with dots, the value, and its ``file:line``."""
        return [(".".join(key), value, self.find_origin(key)) for key, value in self.said().items() if value != {}]


def parse_site_file(file: Path) -> dict[str, Any]:
    """Return what a site file says, as it is written.

    Raises:
        HpcrunError: It cannot be read, or is no TOML.
    """
    return _read_file(file)[0]


def _read_file(file: Path) -> tuple[dict[str, Any], Source]:
    try:
        return _parse_cached(file, file_state(file))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise HpcrunError(f"{file}: not a TOML file: {error}", hint="see https://toml.io") from None
    except OSError as error:
        raise HpcrunError(f"{file}: {error.strerror}", hint="the file must be readable by you") from None


@cache
def _parse_cached(file: Path, _state: tuple[int, ...]) -> tuple[dict[str, Any], Source]:
    source = Source.read(file)
    return tomllib.loads(source.text), source


def list_site_files(layers: Sequence[tuple[str, Path]] | None = None) -> dict[str, list[Path]]:
    """Return every site's files, lowest layer first, by the site's name.

    Args:
        layers: Where to look, as `paths.config_layers` tells it; None for the layers that are used.
    """
    found: dict[str, list[Path]] = {}
    for _, folder in project.used_layers() if layers is None else layers:
        if paths.is_folder(folder):
            for file in sorted(folder.glob("*.toml")):
                found.setdefault(file.stem, []).append(file)
    return found


def _merge(lower: dict[str, Any], upper: dict[str, Any]) -> dict[str, Any]:
    merged = dict(lower)
    for key, value in upper.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _key_paths(table: dict[str, Any], prefix: Key = ()) -> list[Key]:
    keys: list[Key] = []
    for name, value in table.items():
        keys.append((*prefix, name))
        if isinstance(value, dict):
            keys += _key_paths(value, (*prefix, name))
    return keys


def _unknown_site_error(name: str, known: dict[str, list[Path]], at: str = "") -> HpcrunError:
    if (unused := project.find_unused_project()) and f"{name}.toml" in unused.refused:
        return project.not_allowed_error(unused)
    like = closest_match(name, list(known))
    hint = (f"did you mean {like}? " if like else "") + f"known sites: {', '.join(sorted(known))}"
    return HpcrunError("\n".join([f"{at}there is no site {name!r}", *paths.missing_layers()]), hint=hint)


def _merge_layers(
    name: str, known: dict[str, list[Path]], chain: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[Key, Path], dict[Path, Source]]:
    chain = [*chain, name]
    values: dict[str, Any] = {}
    origins: dict[Key, Path] = {}
    sources: dict[Path, Source] = {}
    for file in known[name]:
        table, sources[file] = _read_file(file)
        own = dict(table)
        base = own.pop("extends", None)
        if base is not None and not isinstance(base, str):
            raise HpcrunError(f"{format_location(file, ('extends',))}: extends = {base!r}: name one site")
        if "name" in own:
            raise HpcrunError(f"{format_location(file, ('name',))}: a site's name is its file's", hint="remove it")
        if base:
            at = f"{format_location(file, ('extends',))}: "
            if base not in known:
                raise _unknown_site_error(base, known, at)
            if base in chain:
                circle = " > ".join([*chain, base])
                raise HpcrunError(f"{at}sites extend each other in a circle: {circle}", hint="break the circle")
            below, below_origins, below_sources = _merge_layers(base, known, chain)
            sources |= below_sources
            values, origins = _merge(values, below), {**origins, **below_origins}
        values = _merge(values, own)
        origins.update(dict.fromkeys(_key_paths(own), file))
    return values, origins, sources


def _site_file_path(name: str) -> Path | None:
    """Return the file where a site is named by its file's path."""
    if not (name.endswith(".toml") or "/" in name):
        return None
    file = Path(paths.expand_user(name)).absolute()
    if not file.is_file():
        raise HpcrunError(f"there is no site file {name}", hint="--site takes a name or a path; hpcrun site list")
    return file


def _sibling_site_files(file: Path) -> dict[str, list[Path]]:
    """Return the site files beside one that is named by its path; of an installed layer none, for these are known."""
    if file.parent in {folder.absolute() for _, folder in paths.config_layers()}:
        return {}
    return list_site_files([("", file.parent)])


def find_files_of_site(name: str) -> list[Path]:
    """Return the files of a site, lowest layer first; of a path, that file alone.

    Raises:
        HpcrunError: There is no such site or file.
    """
    known = list_site_files(paths.config_layers())
    if file := _site_file_path(name):
        return [file]
    if name not in known:
        raise _unknown_site_error(name, known)
    return known[name]


def load_site(
    name: str, chosen_by: str = "by name", *, known: dict[str, list[Path]] | None = None, unallowed: bool = False
) -> LoadedSite:
    """Load, merge and validate one site.

    Args:
        name: A site's name, or the path of a site file. That stands in place of all installed files of its name, and
            what it extends is looked for beside it first.
        chosen_by: What named it, for people.
        known: The files of every site, as `list_site_files` tells them; None for those.
        unallowed: Whether a project's files count also where they are not allowed: the site is shown, and not used.

    Raises:
        HpcrunError: Unknown site, or a file that does not fit the model; names file, line and value.
        NotAllowedError: It has a file of a project that is not allowed.
    """
    if known is None:
        known = list_site_files(paths.config_layers() if unallowed else None)
        if not unallowed and (unused := project.find_unused_project()) and f"{name}.toml" in unused.refused:
            raise project.not_allowed_error(unused)
    if file := _site_file_path(name):
        name = file.stem
        known = {**known, **_sibling_site_files(file), name: [file]}
    if name not in known:
        raise _unknown_site_error(name, known)
    values, origins, sources = _merge_layers(name, known)
    return LoadedSite(_validate_cached({**values, "name": name}, origins), chosen_by, origins, tuple(sources.values()))


def _validate_cached(values: dict[str, Any], origins: dict[Key, Path]) -> Site:
    """Validate a site's merged values, or take what came of the same values before: importing pydantic takes 80 ms."""
    from hpcrun import resources
    from hpcrun.sites import site_cache

    changed = [Path(str(module.__file__)).stat().st_mtime_ns for module in (*site_cache.MODULES, resources)]
    key = hashlib.sha256(repr((__version__, changed, values)).encode()).hexdigest()
    site = site_cache.read_site(key)
    if site is None:
        from hpcrun.sites.validate import validate

        site = validate(values, origins)
        site_cache.write_site(key, site)
    return site


def site_from_record(values: dict[str, Any]) -> LoadedSite:
    """Return the site that a job's record holds, whatever its files say today.

    Args:
        values: The ``site`` of ``job.json``.

    Raises:
        HpcrunError: Another version of hpcrun wrote it, whose sites have other keys.
    """
    try:
        return LoadedSite(_validate_cached(values, {}), "as the job's record has it", {})
    except HpcrunError as error:
        what = f"the site {values.get('name')} in the job's record is not one of this version's: {error.message}"
        raise HpcrunError(what, hint=f"--site {values.get('name')} takes the site as it is today") from None


def select_site(explicit: str | None = None) -> tuple[str, str]:
    """Choose the site: ``--site``, ``$HPCRUN_SITE``, the one that is recognised, ``slurm`` where sbatch is, ``local``.

    Returns:
        Its name (or its file's path), whether there is such a site or not, and what chose it.
    """
    if explicit:
        return explicit, "--site"
    if name := os.environ.get("HPCRUN_SITE"):
        return name, "$HPCRUN_SITE"
    if here := detect_site(list_site_files(), parse_site_file):
        return here
    if shutil.which("sbatch"):
        return "slurm", "sbatch is here, and no site's host pattern matches"
    return "local", "there is no sbatch here"


def load_selected_site(explicit: str | None = None, *, unallowed: bool = False) -> LoadedSite:
    """Load the site that is `select_site`.

    A project's file that is not allowed changes nothing, unless it is one of a site that was named: that is refused.

    Args:
        explicit: The site that ``--site`` names.
        unallowed: Whether such a site is looked at all the same, and not used.

    Raises:
        HpcrunError: Unknown site, or one that is not valid or not allowed.
    """
    name, by = select_site(explicit)
    named = name in {explicit, os.environ.get("HPCRUN_SITE")}
    try:
        return load_site(name, by, known=None if named else list_site_files(), unallowed=unallowed)
    except HpcrunError as error:
        if named:
            raise
        hint = f"{error.hint or 'mend it'}; or name the site that you mean: --site NAME, or HPCRUN_SITE=NAME"
        for label, folder in paths.config_layers():
            if label.startswith("added ") and f"{folder}/" in error.message:
                hint += f"; hpcrun site remove {label.removeprefix('added ')} leaves that layer out"
        message = f"the site used here, {name} ({by}), is not valid:\n{error.message}"
        raise HpcrunError(message, hint=hint) from None
