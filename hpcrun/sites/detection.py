"""Detection of the site of this cluster by environment variables or by the host name."""

from __future__ import annotations

import json
import os
import warnings
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from hpcrun import paths
from hpcrun.errors import HpcrunError
from hpcrun.sites.source import file_state

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_KEYS = "detect", "hosts"


def detect_site(
    files_by_site: dict[str, list[Path]], parse_file: Callable[[Path], dict[str, Any]]
) -> tuple[str, str] | None:
    """Return the site of this cluster and how it was detected; None if no site matches.

    Environment variables take precedence over host patterns, because many clusters have host names like ``login1``.
    If a file cannot be read, its cached keys are used; without cached keys, the file is skipped with a warning.

    Args:
        files_by_site: The files of each site, lowest layer first.
        parse_file: Function that parses a file, and raises `HpcrunError` if the file cannot be read.
    """
    keys_by_file = _read_detection_keys([file for layered in files_by_site.values() for file in layered], parse_file)
    for by in (_match_variables, _match_host):
        for name, layered in files_by_site.items():
            if how := next(filter(None, (by(keys_by_file.get(str(file), {})) for file in reversed(layered))), None):
                return name, how
    return None


def _read_detection_keys(files: list[Path], parse_file: Callable[[Path], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the keys ``detect`` and ``hosts`` of each file, cached because parsing takes 1 ms per file."""
    cache_file = paths.user_cache_folder("sites") / "detection.json"
    cached_entries = _read_cache(cache_file)
    entries = {}
    for file in files:
        cached_entry = cached_entries.get(str(file))
        state = None
        with suppress(OSError):
            state = list(file_state(file))
        if cached_entry and cached_entry[0] == state:
            entries[str(file)] = cached_entry
            continue
        try:
            site = parse_file(file)
        except HpcrunError as error:  # the file is being written, or is not readable: use the other files
            if cached_entry:
                entries[str(file)] = cached_entry
            else:
                warnings.warn(f"{error.message}; it is skipped", FutureWarning, stacklevel=2)
            continue
        entries[str(file)] = [state, {key: site[key] for key in _KEYS if key in site}]
    if any(cached_entries.get(file) != entry for file, entry in entries.items()):
        # keep the entries of other files, which hpcrun uses in other working directories
        unused_entries = {
            file: entry for file, entry in cached_entries.items() if file not in entries and os.path.lexists(file)
        }
        with suppress(OSError, TypeError):  # TOML has dates, but JSON does not
            paths.write_atomically(cache_file, json.dumps({**unused_entries, **entries}).encode())
    return {file: detection_keys for file, (_, detection_keys) in entries.items()}


def _read_cache(file: Path) -> dict[str, list[Any]]:
    """Return the cached state and keys of each file; an empty dict if the cache is invalid."""
    try:
        cached_entries = dict(json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}
    is_valid = all(
        isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], dict) for entry in cached_entries.values()
    )
    return cached_entries if is_valid else {}


def _match_variables(detection_keys: dict[str, Any]) -> str | None:
    patterns = detection_keys.get("detect")
    if not patterns or not isinstance(patterns, dict):
        return None
    if all(fnmatchcase(os.environ.get(name, ""), str(pattern)) for name, pattern in patterns.items()):
        return ", ".join(f"${name} is {os.environ.get(name)}" for name in patterns)
    return None


def _match_host(detection_keys: dict[str, Any]) -> str | None:
    host, patterns = os.uname().nodename, detection_keys.get("hosts", ())
    for pattern in patterns if isinstance(patterns, list) else ():
        if fnmatchcase(host, str(pattern)) or fnmatchcase(host.split(".")[0], str(pattern)):
            return f"host {host} matches {pattern}"
    return None
