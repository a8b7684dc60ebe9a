"""Where the site file of a run says something, as it was when the run was submitted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.jobs import records
from hpcrun.jobs.run_files import SiteOrigins
from hpcrun.provenance.record import FOLDER

if TYPE_CHECKING:
    from hpcrun.jobs.runs import Run


def place(run: Run, key: str) -> str:
    """Return ``file:line`` of a key, or of what is in its table; where no file of people's sets it, where it belongs.

    Args:
        run: The run, whose partition and QoS may say something of their own.
        key: The key's path, such as ``container.runtime``.
    """
    resources, site = run.spec.resources, run.spec.site.name or "not said"
    levels = [f"qos.{resources.qos}.", f"partitions.{resources.partition}."]
    told = _told(run)
    for name in (key, key.partition(".")[0]):
        for level in (*levels, ""):
            origins = (told[known] for known in told if f"{known}.".startswith(f"{level}{name}."))
            if origin := next(origins, None):
                shipped = Path(origin.rpartition(":")[0]).parent == paths.shipped_folder("site-configs")
                return f"a file of your own ({paths.user_config_folder() / f'{site}.toml'})" if shipped else origin
    return f"the file of site {site}"


def _told(run: Run) -> dict[str, str]:
    """Return where each value was said, by its key; empty where that was not written down."""
    try:
        record = records.read(run.directory / FOLDER / "site.json", SiteOrigins) or SiteOrigins()
        return {key: str(value["from"]) for key, value in record.values.items() if value["from"]}
    except (records.BadRecordError, LookupError, TypeError):
        return {}
