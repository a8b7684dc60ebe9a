"""A cache of run states, so that commands query the scheduler less often.

Two files beside the index: ``ended.json`` has the runs that ended long ago, with their final rows as far as a command
needed them, and ``last.json`` the last known state of the others, by name of the run directory. Both may be missing or
stale at any time: commands then read the run directories or query the scheduler. Therefore writers need no lock; each
replaces a file atomically.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.jobs import records

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from hpcrun.jobs.validation import JsonObject

CACHE_FORMAT = 1
"""The version of the file format; files of another version are ignored."""


@dataclass(frozen=True)
class CacheFile:
    """The content of a cache file.

    Attributes:
        format: `CACHE_FORMAT` of the version that wrote it.
        runs: An entry per run, by name of its directory; see `hpcrun.jobs.status_rows`.
    """

    format: int
    runs: JsonObject


def _cache_path(name: str) -> Path:
    return paths.run_index_folder().with_name(f"{name}.json")


def read_cache(name: str) -> dict[str, JsonObject]:
    """Return the entries of a cache file; none if it is missing or invalid.

    Args:
        name: ``ended`` or ``last``.
    """
    try:
        content = records.read_record(_cache_path(name), CacheFile)
    except records.BadRecordError:
        return {}
    runs = content.runs if content and content.format == CACHE_FORMAT else {}
    return {key: entry for key, entry in runs.items() if isinstance(entry, dict)}


def update_cache(name: str, entries: Mapping[str, JsonObject], drop: Iterable[str] = ()) -> None:
    """Add entries to a cache file and drop others; do nothing if the file is not writable.

    Args:
        name: ``ended`` or ``last``.
        entries: The new entries, by name of the run directory.
        drop: Names of run directories to drop.
    """
    before = read_cache(name)
    dropped = set(drop)
    after = {key: entry for key, entry in {**before, **entries}.items() if key not in dropped}
    if after != before:
        with suppress(OSError):
            paths.write_atomically(_cache_path(name), json.dumps({"format": CACHE_FORMAT, "runs": after}).encode())


def clear_cache() -> None:
    """Remove the cache files."""
    for name in ("ended", "last"):
        with suppress(OSError):
            _cache_path(name).unlink(missing_ok=True)
