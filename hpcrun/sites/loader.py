"""Loading of a site from the files in all layers, with the file and line of each value."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun import paths
from hpcrun.errors import HpcrunError, closest_match
from hpcrun.frozen import frozen
from hpcrun.sites import project
from hpcrun.sites.detection import detect_site
from hpcrun.sites.line_numbers import Key, format_location
from hpcrun.sites.merging import merge_files, parse_site_file, unknown_site_error
from hpcrun.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.sites.site_model import Site
    from hpcrun.sites.source import SiteSource

_MAX_LISTED_FILES = 9  # maximum number of files listed in a hint


@frozen
class LoadedSite:
    """A site, and the files from which it was loaded.

    Attributes:
        site: The validated site.
        chosen_by: The option, variable or rule that selected the site, such as ``--site``.
        origins: The file of each value, by its key path.
        sources: All files of the site, with the text that was read.
        ineffective_unsets: The files and keys of ``unset`` that no lower file sets.
    """

    site: Site
    chosen_by: str
    origins: dict[Key, Path]
    sources: tuple[SiteSource, ...] = ()
    ineffective_unsets: tuple[tuple[Path, str], ...] = ()

    def find_origin(self, key: Key) -> str | None:
        """Return ``file:line`` of a value; None if the value is a default."""
        file = self.origins.get(key)
        return format_location(file, key) if file else None

    def explicit_values(self) -> dict[Key, Any]:
        """Return the values that site files set, by key; an empty table has the value ``{}``."""
        values, table_keys = asdict(self.site), {key[:-1] for key in self.origins}
        explicit_values = {}
        for key in sorted(self.origins):
            value: Any = values
            for part in key:
                value = value[part]
            if key not in table_keys:
                explicit_values[key] = {} if isinstance(value, dict) else value
        return explicit_values

    def list_values(self) -> list[tuple[str, Any, str | None]]:
        """Return the dotted key, the value and the ``file:line`` of each value that a site file sets."""
        return [
            (".".join(key), value, self.find_origin(key))
            for key, value in self.explicit_values().items()
            if value != {}
        ]


def list_site_files(layers: Sequence[tuple[str, Path]] | None = None) -> dict[str, list[Path]]:
    """Return the files of every site by the site's name, lowest layer first.

    Args:
        layers: The layers to search, as `paths.config_layers` returns them; None: the layers in use.
    """
    files_by_site: dict[str, list[Path]] = {}
    for _, folder in project.used_layers() if layers is None else layers:
        if paths.is_folder(folder):
            for file in sorted(folder.glob("*.toml")):
                files_by_site.setdefault(file.stem, []).append(file)
    return files_by_site


def _site_file_path(name: str) -> Path | None:
    """Return the site file if a name is a path; None if it is the name of a site."""
    if not (name.endswith(".toml") or "/" in name):
        return None
    file = Path(paths.expand_user(name)).absolute()
    if not file.is_file():
        folder, typed_folder = (file, Path(name)) if file.is_dir() else (file.parent, Path(name).parent)
        paths_by_name = {each.name: _with_slash(typed_folder / each.name) for each in sorted(folder.glob("*.toml"))}
        hint = "--site takes a name or a path; hpcrun site list"
        if closest_name := closest_match(Path(name).name, list(paths_by_name)):
            hint = f"did you mean {paths_by_name[closest_name]}?"
        elif 0 < len(paths_by_name) <= _MAX_LISTED_FILES:
            hint = f"site files there: {', '.join(paths_by_name.values())}"
        raise HpcrunError(f"{name} is a folder" if file.is_dir() else f"there is no site file {name}", hint=hint)
    return file


def _with_slash(path: Path) -> str:
    """Return a path in a form that --site does not mistake for the name of a site."""
    return str(path) if str(path).startswith(("/", "../", "~")) else f"./{path}"


def _sibling_site_files(file: Path) -> dict[str, list[Path]]:
    """Return the other site files in the folder of a file that was given by path; empty if this folder is a layer."""
    if file.parent in {folder.absolute() for _, folder in paths.config_layers()}:
        return {}
    return list_site_files([("", file.parent)])


def find_files_of_site(name: str) -> list[Path]:
    """Return the files of a site, lowest layer first; for a path, only the file at that path.

    Raises:
        HpcrunError: The site or file does not exist.
    """
    files_by_site = list_site_files(paths.config_layers())
    if file := _site_file_path(name):
        return [file]
    if name not in files_by_site:
        raise unknown_site_error(name, files_by_site)
    return files_by_site[name]


def load_site(
    name: str,
    chosen_by: str = "by name",
    *,
    files_by_site: dict[str, list[Path]] | None = None,
    include_unallowed: bool = False,
) -> LoadedSite:
    """Load, merge and validate one site.

    Args:
        name: A site's name, or the path of a site file. A file given by path replaces all installed files of the same
            name; a site that it extends is searched for in its folder first.
        chosen_by: The option, variable or rule that selected the site, for messages.
        files_by_site: The files of every site; None: the result of `list_site_files`.
        include_unallowed: Whether to load project files that the user has not allowed, only to show the site.

    Raises:
        HpcrunError: The site is unknown or a file is not valid; the message contains file, line and value.
        NotAllowedError: A file belongs to a project that the user has not allowed.
    """
    if files_by_site is None:
        files_by_site = list_site_files(paths.config_layers() if include_unallowed else None)
        if (
            not include_unallowed
            and (unused := project.find_unused_project())
            and (unused.folder / f"{name}.toml").is_file()
        ):
            raise project.not_allowed_error(unused)
    if file := _site_file_path(name):
        name = file.stem
        files_by_site = {**files_by_site, **_sibling_site_files(file), name: [file]}
    if name not in files_by_site:
        raise unknown_site_error(name, files_by_site, f"HPCRUN_SITE={name}: " if chosen_by == "$HPCRUN_SITE" else "")
    merged_files = merge_files(name, files_by_site)
    site = _validate_cached({**merged_files.values, "name": name}, merged_files.origins)
    return LoadedSite(
        site,
        chosen_by,
        merged_files.origins,
        tuple(merged_files.sources.values()),
        tuple(merged_files.ineffective_unsets),
    )


def _validate_cached(values: dict[str, Any], origins: dict[Key, Path]) -> Site:
    """Validate a site's merged values, or return the cached result: importing pydantic takes 80 ms."""
    from hpcrun import field_checks, resources
    from hpcrun.sites import site_cache

    modification_times = [
        Path(str(module.__file__)).stat().st_mtime_ns for module in (*site_cache.MODULES, field_checks, resources)
    ]
    cache_key = repr((__version__, modification_times, values))
    site = site_cache.read_site(cache_key)
    if site is None:
        from hpcrun.sites.validate import validate

        site = validate(values, origins)
        site_cache.write_site(cache_key, site)
    return site


def site_from_record(values: dict[str, Any]) -> LoadedSite:
    """Return the site that is stored in a job's record, regardless of the current site files.

    Args:
        values: The table ``site`` of ``job.json``.

    Raises:
        HpcrunError: A different version of hpcrun wrote the record, with site keys that this version does not have.
    """
    try:
        return LoadedSite(_validate_cached(values, {}), "as the job's record has it", {})
    except HpcrunError as error:
        message = f"the site {values.get('name')} in the job's record is not valid for this version: {error.message}"
        raise HpcrunError(message, hint=f"--site {values.get('name')} uses today's site file") from None


def select_site(site_option: str | None = None) -> tuple[str, str]:
    """Select the site: ``--site``, ``$HPCRUN_SITE``, the detected site, ``slurm`` if sbatch is installed, or ``local``.

    Returns:
        The name or file of the site, which may not exist, and the option, variable or rule that selected it.
    """
    if site_option:
        return site_option, "--site"
    if name := os.environ.get("HPCRUN_SITE"):
        return name, "$HPCRUN_SITE"
    if detected := detect_site(list_site_files(), parse_site_file):
        return detected
    if shutil.which("sbatch"):
        return "slurm", "sbatch is installed, and no site's host pattern matches"
    return "local", "sbatch is not installed"


def load_selected_site(site_option: str | None = None, *, include_unallowed: bool = False) -> LoadedSite:
    """Load the site that `select_site` selects.

    Project files that the user has not allowed are ignored; a site with a file that is not allowed is refused if it was
    named explicitly.

    Args:
        site_option: The value of ``--site``.
        include_unallowed: Whether to load a site with files that the user has not allowed, only to show the site.

    Raises:
        HpcrunError: The site is unknown, not valid or not allowed.
    """
    name, chosen_by = select_site(site_option)
    is_explicit = name in {site_option, os.environ.get("HPCRUN_SITE")}
    try:
        return load_site(
            name,
            chosen_by,
            files_by_site=None if is_explicit else list_site_files(),
            include_unallowed=include_unallowed,
        )
    except HpcrunError as error:
        if is_explicit:
            raise
        hint = f"{error.hint or 'correct it'}; or select another site: --site NAME, or HPCRUN_SITE=NAME"
        for label, folder in paths.config_layers():
            if label.startswith("added ") and f"{folder}/" in error.message:
                hint += f"; hpcrun site remove {label.removeprefix('added ')} removes that layer"
        message = f"the selected site, {name} ({chosen_by}), is not valid:\n{error.message}"
        raise HpcrunError(message, hint=hint) from None
