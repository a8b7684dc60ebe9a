"""A cache of run states, so that commands query the scheduler less often.

The folder of the index has two files, with entries by name of the run directory: ``ended.json`` lists the runs that
ended long ago, with their final rows if a command needed them; ``last.json`` has the last known state of all other
runs. The cache files may be missing or stale at any time: commands then read the run directories or query the
scheduler. Therefore writers need no lock; each writer replaces a file atomically.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.frozen import frozen
from hpcrun.jobs import safe_reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from hpcrun.jobs.record_validation import JsonObject

CACHE_FORMAT = 1
"""The version of the file format; files of another version are ignored."""


@frozen
class CacheFile:
    """The content of a cache file.

    Attributes:
        format: `CACHE_FORMAT` of the hpcrun version that wrote the file.
        runs: One entry per run, by name of the run directory, see `hpcrun.jobs.status_rows`.
    """

    format: int
    runs: JsonObject


def _cache_path(name: str) -> Path:
    return paths.run_index_folder().with_name(f"{name}.json")


def read_cache(name: str) -> dict[str, JsonObject]:
    """Return the entries of a cache file; empty if the file is missing or invalid.

    Args:
        name: ``ended`` or ``last``.
    """
    try:
        content = safe_reading.read_record(_cache_path(name), CacheFile)
    except safe_reading.BadRecordError:
        return {}
    runs = content.runs if content and content.format == CACHE_FORMAT else {}
    return {key: entry for key, entry in runs.items() if isinstance(entry, dict)}


def update_cache(name: str, entries: Mapping[str, JsonObject], dropped_names: Iterable[str] = ()) -> None:
    """Add entries to a cache file and remove others; do nothing if the file is not writable.

    Args:
        name: ``ended`` or ``last``.
        entries: The new entries, by name of the run directory.
        dropped_names: Names of the run directories whose entries are removed.
    """
    old_entries = read_cache(name)
    dropped_names_set = set(dropped_names)
    new_entries = {key: entry for key, entry in {**old_entries, **entries}.items() if key not in dropped_names_set}
    if new_entries != old_entries:
        with suppress(OSError):
            paths.write_atomically(
                _cache_path(name), json.dumps({"format": CACHE_FORMAT, "runs": new_entries}).encode()
            )


def forget(names: Iterable[str]) -> None:
    """Remove runs from the cache files.

    Args:
        names: The names of the run directories.
    """
    dropped_names = list(names)
    for cache in ("ended", "last"):
        update_cache(cache, {}, dropped_names=dropped_names)


def clear_cache() -> None:
    """Remove the cache files."""
    for name in ("ended", "last"):
        with suppress(OSError):
            _cache_path(name).unlink(missing_ok=True)
