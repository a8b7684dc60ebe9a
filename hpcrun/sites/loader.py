"""Loading a site from its layers of files, with ``extends``, and the file and line of each value."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun import paths
from hpcrun.errors import HpcrunError, closest_match
from hpcrun.sites import project
from hpcrun.sites.detection import detect_site
from hpcrun.sites.line_numbers import Key, format_location
from hpcrun.sites.merging import merge_files, parse_site_file, unknown_site_error
from hpcrun.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.sites.model import Site
    from hpcrun.sites.source import Source


@dataclass(frozen=True)
class LoadedSite:
    """A site, and the files that it was loaded from.

    Attributes:
        site: The validated site.
        chosen_by: What selected it, such as ``--site``.
        origins: The file of each value, by its key path.
        sources: All its files, with the text that was read.
        ineffective_unsets: The files and keys of ``unset`` that no lower file sets.
    """

    site: Site
    chosen_by: str
    origins: dict[Key, Path]
    sources: tuple[Source, ...] = ()
    ineffective_unsets: tuple[tuple[Path, str], ...] = ()

    def find_origin(self, key: Key) -> str | None:
        """Return ``file:line`` of a value, or None where it is the model's default."""
        file = self.origins.get(key)
        return format_location(file, key) if file else None

    def explicit_values(self) -> dict[Key, Any]:
        """Return the values that site files set, by key; an empty table has the value ``{}``."""
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
        """Return the values that site files set: the dotted key, the value and its ``file:line``."""
        return [
            (".".join(key), value, self.find_origin(key))
            for key, value in self.explicit_values().items()
            if value != {}
        ]


def list_site_files(layers: Sequence[tuple[str, Path]] | None = None) -> dict[str, list[Path]]:
    """Return the files of every site by its name, lowest layer first.

    Args:
        layers: The layers to search, as `paths.config_layers` returns them; by default those in use.
    """
    found: dict[str, list[Path]] = {}
    for _, folder in project.used_layers() if layers is None else layers:
        if paths.is_folder(folder):
            for file in sorted(folder.glob("*.toml")):
                found.setdefault(file.stem, []).append(file)
    return found


def _site_file_path(name: str) -> Path | None:
    """Return the site file that a name is the path of, or None where it is a site's name."""
    if not (name.endswith(".toml") or "/" in name):
        return None
    file = Path(paths.expand_user(name)).absolute()
    if not file.is_file():
        files = [str(Path(name).parent / one.name) for one in file.parent.glob("*.toml")]
        like = closest_match(str(Path(name)), files)
        hint = f"did you mean ./{like}?" if like else "--site takes a name or a path; hpcrun site list"
        raise HpcrunError(f"there is no site file {name}", hint=hint.replace(".//", "/"))
    return file


def _sibling_site_files(file: Path) -> dict[str, list[Path]]:
    """Return the site files in the folder of a site file given by path, unless that folder is a layer."""
    if file.parent in {folder.absolute() for _, folder in paths.config_layers()}:
        return {}
    return list_site_files([("", file.parent)])


def find_files_of_site(name: str) -> list[Path]:
    """Return the files of a site, lowest layer first; for a path only that file.

    Raises:
        HpcrunError: The site or file does not exist.
    """
    known = list_site_files(paths.config_layers())
    if file := _site_file_path(name):
        return [file]
    if name not in known:
        raise unknown_site_error(name, known)
    return known[name]


def load_site(
    name: str, chosen_by: str = "by name", *, known: dict[str, list[Path]] | None = None, unallowed: bool = False
) -> LoadedSite:
    """Load, merge and validate one site.

    Args:
        name: A site's name, or the path of a site file. A file given by path replaces all installed files of its
            name, and the site that it extends is searched in its folder first.
        chosen_by: What selected the site, for messages.
        known: The files of every site; by default those of `list_site_files`.
        unallowed: Whether to load files of a project that are not allowed, to show the site and not to use it.

    Raises:
        HpcrunError: The site is unknown or a file is not valid; the message names file, line and value.
        NotAllowedError: A file belongs to a project that is not allowed.
    """
    if known is None:
        known = list_site_files(paths.config_layers() if unallowed else None)
        if not unallowed and (unused := project.find_unused_project()) and (unused.folder / f"{name}.toml").is_file():
            raise project.not_allowed_error(unused)
    if file := _site_file_path(name):
        name = file.stem
        known = {**known, **_sibling_site_files(file), name: [file]}
    if name not in known:
        raise unknown_site_error(name, known)
    merged = merge_files(name, known)
    site = _validate_cached({**merged.values, "name": name}, merged.origins)
    return LoadedSite(site, chosen_by, merged.origins, tuple(merged.sources.values()), tuple(merged.ineffective_unsets))


def _validate_cached(values: dict[str, Any], origins: dict[Key, Path]) -> Site:
    """Validate a site's merged values, or return the cached result: importing pydantic takes 80 ms."""
    from hpcrun import field_checks, resources
    from hpcrun.sites import site_cache

    changed = [
        Path(str(module.__file__)).stat().st_mtime_ns for module in (*site_cache.MODULES, field_checks, resources)
    ]
    key = hashlib.sha256(repr((__version__, changed, values)).encode()).hexdigest()
    site = site_cache.read_site(key)
    if site is None:
        from hpcrun.sites.validate import validate

        site = validate(values, origins)
        site_cache.write_site(key, site)
    return site


def site_from_record(values: dict[str, Any]) -> LoadedSite:
    """Return the site stored in a job's record, independent of today's site files.

    Args:
        values: The ``site`` of ``job.json``.

    Raises:
        HpcrunError: Another version of hpcrun wrote the record, with other keys of sites.
    """
    try:
        return LoadedSite(_validate_cached(values, {}), "as the job's record has it", {})
    except HpcrunError as error:
        what = f"the site {values.get('name')} in the job's record is not valid for this version: {error.message}"
        raise HpcrunError(what, hint=f"--site {values.get('name')} uses today's site file") from None


def select_site(explicit: str | None = None) -> tuple[str, str]:
    """Select the site: ``--site``, ``$HPCRUN_SITE``, the detected one, ``slurm`` where sbatch is installed, ``local``.

    Returns:
        The name or file of the site, which need not exist, and what selected it.
    """
    if explicit:
        return explicit, "--site"
    if name := os.environ.get("HPCRUN_SITE"):
        return name, "$HPCRUN_SITE"
    if here := detect_site(list_site_files(), parse_site_file):
        return here
    if shutil.which("sbatch"):
        return "slurm", "sbatch is installed, and no site's host pattern matches"
    return "local", "sbatch is not installed"


def load_selected_site(explicit: str | None = None, *, unallowed: bool = False) -> LoadedSite:
    """Load the site that `select_site` selects.

    Project files that are not allowed are ignored; a site that was named and has such a file is refused.

    Args:
        explicit: The value of ``--site``.
        unallowed: Whether to load such a site nevertheless, to show it.

    Raises:
        HpcrunError: The site is unknown, not valid or not allowed.
    """
    name, by = select_site(explicit)
    named = name in {explicit, os.environ.get("HPCRUN_SITE")}
    try:
        return load_site(name, by, known=None if named else list_site_files(), unallowed=unallowed)
    except HpcrunError as error:
        if named:
            raise
        hint = f"{error.hint or 'correct it'}; or select another site: --site NAME, or HPCRUN_SITE=NAME"
        for label, folder in paths.config_layers():
            if label.startswith("added ") and f"{folder}/" in error.message:
                hint += f"; hpcrun site remove {label.removeprefix('added ')} removes that layer"
        message = f"the selected site, {name} ({by}), is not valid:\n{error.message}"
        raise HpcrunError(message, hint=hint) from None
