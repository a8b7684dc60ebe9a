"""Reader of the TOML files of a site, merged from all layers, with ``extends`` and ``unset``."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from hpcrun import paths
from hpcrun.errors import HpcrunError, closest_match
from hpcrun.sites import project
from hpcrun.sites.line_numbers import Key, format_location
from hpcrun.sites.source import SiteSource, file_state

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def parse_site_file(file: Path) -> dict[str, Any]:
    """Parse a site file.

    Raises:
        HpcrunError: The file cannot be read, or is not TOML.
    """
    return _read_file(file)[0]


def _advise_on_characters(file: Path) -> str:
    """Return advice on characters or words in a site file that are not TOML; empty if there are none."""
    text = file.read_text(encoding="utf-8", errors="replace")
    if text.startswith("\ufeff"):
        return "the file begins with a byte order mark: save it as UTF-8 without BOM"
    if quote := re.search("[\u2018\u2019\u201c\u201d]", text):
        return f'use straight quotes (") in place of {quote[0]}'
    if word := re.search(r"=\s*(True|TRUE|False|FALSE|yes|no|Yes|No|on|off|None|null)\s*(?:#|$)", text, re.MULTILINE):
        return f"{word[1]} is no value in TOML: true and false have lower case; leave a key out that has no value"
    return ""


def _read_file(file: Path) -> tuple[dict[str, Any], SiteSource]:
    try:
        return _parse_cached(file, file_state(file))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        hint = 'lines are KEY = "VALUE", KEY = ["A", "B"] or [TABLE]: docs/sites.md has examples, https://toml.io all'
        if r"Illegal character '\n'" in str(error):
            hint = f"a string ends with the quote that it begins with; {hint}"
        if "Cannot declare" in str(error) or "Cannot overwrite" in str(error):
            hint = "put all keys of a table below one [TABLE], without dotted keys such as gpu.request above it"
        elif advice := _advise_on_characters(file):
            hint = advice
        raise HpcrunError(f"{file}: not a TOML file: {error}", hint=hint) from None
    except OSError as error:
        raise HpcrunError(f"{file}: {error.strerror}", hint="the file must be readable by you") from None


@cache
def _parse_cached(file: Path, _state: tuple[int, ...]) -> tuple[dict[str, Any], SiteSource]:
    source = SiteSource.read(file)
    return tomllib.loads(source.text), source


def _merge(lower_table: dict[str, Any], upper_table: dict[str, Any]) -> dict[str, Any]:
    merged_table = dict(lower_table)
    for key, value in upper_table.items():
        old_value = merged_table.get(key)
        merged_table[key] = (
            _merge(old_value, value) if isinstance(old_value, dict) and isinstance(value, dict) else value
        )
    return merged_table


def _key_paths(table: dict[str, Any], prefix: Key = ()) -> list[Key]:
    keys: list[Key] = []
    for name, value in table.items():
        keys.append((*prefix, name))
        if isinstance(value, dict):
            keys += _key_paths(value, (*prefix, name))
    return keys


def unknown_site_error(name: str, files_by_site: dict[str, list[Path]], location: str = "") -> HpcrunError:
    """Return the error about a site that does not exist.

    Args:
        name: The name of the site.
        files_by_site: The files of every site.
        location: The file and line, or the variable, that name the site, before the message; or empty.
    """
    if (unused := project.find_unused_project()) and (unused.folder / f"{name}.toml").is_file():
        return project.not_allowed_error(unused)
    stem = name.removesuffix(".toml").rpartition("/")[2]  # as in extends = "./slurm.toml"
    closest_name = stem if stem in files_by_site else closest_match(name, list(files_by_site))
    suggestion = f"did you mean {closest_name}? hpcrun site list has all sites" if closest_name else ""
    hint = suggestion or f"known sites: {', '.join(sorted(files_by_site))}"
    return HpcrunError("\n".join([f"{location}there is no site {name!r}", *paths.missing_layers()]), hint=hint)


@dataclass
class MergedFiles:
    """The merged values of a site's files, from the lowest layer up.

    Attributes:
        values: The values.
        origins: The file of each value, by its key path.
        sources: The files, with the text that was read.
        ineffective_unsets: The files and keys of ``unset`` that no lower file sets.
    """

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[Key, Path] = field(default_factory=dict)
    sources: dict[Path, SiteSource] = field(default_factory=dict)
    ineffective_unsets: list[tuple[Path, str]] = field(default_factory=list)

    def add(self, values: dict[str, Any], origins: dict[Key, Path]) -> None:
        """Add the values of a higher layer."""
        old_library, new_library = _mpi_library(self.values), _mpi_library(values)
        if None not in {old_library, new_library} and old_library != new_library:
            self.remove(("mpi",))  # the other keys of the table mpi belong to the previous library
        self.values = _merge(self.values, values)
        self.origins |= origins

    def remove(self, key: Key) -> bool:
        """Remove a value or a table; return whether it was set."""
        table: Any = self.values
        for part in key[:-1]:
            table = table.get(part) if isinstance(table, dict) else None
        if not isinstance(table, dict) or key[-1] not in table:
            return False
        self.values = _remove_key(self.values, key)
        self.origins = {known: file for known, file in self.origins.items() if known[: len(key)] != key}
        return True

    def unset(self, file: Path, keys: Any) -> None:
        """Remove the values whose keys a file lists in ``unset``.

        Raises:
            HpcrunError: The value of ``unset`` is not a list of keys.
        """
        location = format_location(file, ("unset",)) if keys else ""
        if not isinstance(keys, list):
            raise HpcrunError(f"{location}: unset = {keys!r}: expected a list of keys", hint='such as ["mpi.type"]')
        for key in keys:
            try:
                path = _parse_key(key)
            except ValueError:
                raise HpcrunError(f"{location}: unset = {key!r}: not a key", hint='such as "mpi.type"') from None
            if not self.remove(path):
                self.ineffective_unsets.append((file, key))


def _mpi_library(values: dict[str, Any]) -> str | None:
    table = values.get("mpi")
    library = table.get("library") if isinstance(table, dict) else None
    return library if isinstance(library, str) else None


def _remove_key(table: dict[str, Any], key: Key) -> dict[str, Any]:
    remaining_values = {name: value for name, value in table.items() if name != key[0]}
    return {**remaining_values, key[0]: _remove_key(table[key[0]], key[1:])} if len(key) > 1 else remaining_values


def _parse_key(text: Any) -> Key:
    """Parse a dotted TOML key.

    Raises:
        ValueError: The text is not a valid TOML key.
    """
    remaining_value: Any = tomllib.loads(f"{text} = 0") if isinstance(text, str) and text.isprintable() else {}
    key: list[str] = []
    while isinstance(remaining_value, dict) and len(remaining_value) == 1:
        ((name, remaining_value),) = remaining_value.items()
        key.append(name)
    if remaining_value != 0:
        raise ValueError(text)
    return tuple(key)


def merge_files(name: str, files_by_site: dict[str, list[Path]], chain: Sequence[str] = ()) -> MergedFiles:
    """Merge the files of a site, and of the sites that it extends.

    Args:
        name: The site's name.
        files_by_site: The files of every site, lowest layer first.
        chain: The sites that extend this site, directly or indirectly.

    Raises:
        HpcrunError: A file is not valid TOML, or extends an unknown site, or itself.
    """
    chain = [*chain, name]
    merged_files = MergedFiles()
    for file in files_by_site[name]:
        table, merged_files.sources[file] = _read_file(file)
        own_values = dict(table)
        base, unset_keys = own_values.pop("extends", None), own_values.pop("unset", [])
        if base is not None and not isinstance(base, str):
            raise HpcrunError(f"{format_location(file, ('extends',))}: extends = {base!r}: name one site")
        if "name" in own_values:
            raise HpcrunError(f"{format_location(file, ('name',))}: a site's name is its file's", hint="remove it")
        if base:
            location = f"{format_location(file, ('extends',))}: "
            if base not in files_by_site:
                raise unknown_site_error(base, files_by_site, location)
            if base in chain:
                cycle = " > ".join([*chain, base])
                raise HpcrunError(f"{location}sites extend each other in a cycle: {cycle}", hint="break the cycle")
            base_site = merge_files(base, files_by_site, chain)
            merged_files.sources |= base_site.sources
            merged_files.add(base_site.values, base_site.origins)
            merged_files.ineffective_unsets += base_site.ineffective_unsets
        merged_files.unset(file, unset_keys)
        merged_files.add(own_values, dict.fromkeys(_key_paths(own_values), file))
    return merged_files
