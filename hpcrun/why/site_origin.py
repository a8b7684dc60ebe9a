"""The site file and line that set a key, as recorded when a run was submitted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.jobs import safe_reading
from hpcrun.jobs.run_files import SiteOrigins
from hpcrun.provenance.record import FOLDER
from hpcrun.sites.partition import matching_tables

if TYPE_CHECKING:
    from hpcrun.jobs.runs import Run


def find_origin(run: Run, key: str) -> str:
    """Return ``file:line`` of a key or of a key in its table; for a key of a shipped file, the file that overrides it.

    Args:
        run: The run; the site may have different values for its partition, QoS, constraint and account.
        key: The key's path, such as ``container.runtime``.
    """
    site = run.spec.site.name or "not set"
    recorded_origins = _read_origins(run)
    tables: dict[str, dict[str, None]] = {}
    for table, name, _ in (known.split(".", 2) for known in recorded_origins if known.count(".") > 1):
        tables.setdefault(table, {})[name] = None
    levels = [f"{table}.{name}." for table, name in reversed(matching_tables(tables, run.spec.resources))]
    for name in (key, key.partition(".")[0]):
        for level in (*levels, ""):
            origins = (
                recorded_origins[known] for known in recorded_origins if f"{known}.".startswith(f"{level}{name}.")
            )
            if origin := next(origins, None):
                is_shipped = Path(origin.rpartition(":")[0]).parent == paths.shipped_folder("site-configs")
                return f"your own file ({paths.user_config_folder() / f'{site}.toml'})" if is_shipped else origin
    return f"the file of site {site}"


def _read_origins(run: Run) -> dict[str, str]:
    """Return the origin of each value by key; empty without a record."""
    try:
        record = safe_reading.read_record(run.directory / FOLDER / "site.json", SiteOrigins) or SiteOrigins()
    except safe_reading.BadRecordError:
        return {}
    return {key: origin.place for key, origin in record.origins.items() if origin.place}
