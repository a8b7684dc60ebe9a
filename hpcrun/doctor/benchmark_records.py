"""The records of a site's benchmarks: lines of ``NAME.tested.jsonl``, in the folder of the site file if possible."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, field, fields
from typing import TYPE_CHECKING, Any

from hpcrun import paths, permissions
from hpcrun.frozen import frozen
from hpcrun.sites import loader

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.sites.loader import LoadedSite

Metrics = dict[str, float]


@frozen(kw_only=True)
class BenchmarkRecord:
    """The record of one benchmark of a site.

    Attributes:
        time: The time at which the benchmark ended, in the form ``2026-05-31T14:00:00+00:00``.
        site: The name of the site.
        user: The user who ran the benchmark.
        job_id: The job's id.
        partition: The partition; empty if none was requested.
        nodes: The number of nodes.
        ranks: The number of ranks.
        nodelist: The names of the nodes, as a Slurm node list.
        failed: The name of the failed step; empty if the benchmark succeeded.
        slow: The regressions as text; empty if there are none.
        versions: Versions of hpcrun, the MPI library, Slurm, Python and the kernel, and the network devices.
        figures: Metrics of MPI_Allreduce with all ranks: ``latency_us`` and ``bandwidth_GBps``.
        of_nodes: Metrics by node name; the network metrics of a node are the best of all pairs with this node.
    """

    time: str
    site: str
    user: str = ""
    job_id: str = ""
    partition: str = ""
    nodes: int
    ranks: int
    nodelist: str = ""
    failed: str = ""
    slow: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    figures: Metrics = field(default_factory=dict)
    of_nodes: dict[str, Metrics] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """The outcome: ``ok``, ``slow`` or ``FAILED (STEP)``."""
        return f"FAILED ({self.failed})" if self.failed else "slow" if self.slow else "ok"

    def is_comparable_to(self, other_record: BenchmarkRecord) -> bool:
        """Return whether the metrics of two benchmarks are comparable."""
        own_setup, other_setup = ((one.site, one.partition, one.nodes, one.ranks) for one in (self, other_record))
        return own_setup == other_setup


def append_record(loaded_site: LoadedSite, record: BenchmarkRecord) -> Path | None:
    """Append a record to a site's record file with a single write, so that lines of several users do not mix.

    Returns:
        The record file; None if it could not be written.
    """
    line = (json.dumps(asdict(record)) + "\n").encode()
    for file in _record_files(loaded_site):
        with suppress(OSError):
            if file.parent == paths.site_test_folder():
                permissions.make_own_folder(file.parent)
            _append_line(file, line)
            return file
    return None


def _append_line(file: Path, line: bytes) -> None:
    # O_NOFOLLOW: another user may have put a link into a shared folder
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    is_new = not file.exists()
    descriptor = os.open(file, flags, 0o644)
    try:
        if is_new and file.parent.stat().st_mode & 0o020:  # the folder is group-writable
            with suppress(OSError):
                os.fchmod(descriptor, 0o664)
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def read_records(loaded_site: LoadedSite) -> list[BenchmarkRecord]:
    """Return the records of a site, oldest first; invalid lines are skipped."""
    records = []
    for file in _record_files(loaded_site):
        with suppress(OSError):
            records += [
                record for line in file.read_text(errors="replace").splitlines() if (record := _parse_record(line))
            ]
    return sorted(records, key=lambda record: record.time)


def _parse_record(line: str) -> BenchmarkRecord | None:
    """Parse a record of any version of hpcrun; unknown fields, and fields of an unexpected type, are skipped."""
    try:
        values = json.loads(line)
        fields_by_name = {one.name: one for one in fields(BenchmarkRecord)}
        types_by_name = {"int": int, "str": str}
        known_values = {
            name: _escape_unprintable(value)
            for name, value in values.items()
            if name in fields_by_name and isinstance(value, types_by_name.get(str(fields_by_name[name].type), dict))
        }
        if not all(isinstance(version, str) for version in known_values.get("versions", {}).values()):
            return None
        for name in ("figures", *known_values.get("of_nodes", {})):
            metrics = known_values.get("figures", {}) if name == "figures" else known_values["of_nodes"][name]
            if not all(type(value) in {int, float} and value > 0 for value in metrics.values()):
                return None
        return BenchmarkRecord(**known_values)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


def _escape_unprintable(value: Any) -> Any:
    """Replace unprintable characters, because other users may write record files."""
    if isinstance(value, dict):
        return {_escape_unprintable(key): _escape_unprintable(one) for key, one in value.items()}
    return "".join(c if c.isprintable() else "?" for c in value) if isinstance(value, str) else value


def _record_files(loaded_site: LoadedSite) -> list[Path]:
    """Return the files that may have records of the site.

    One is next to the site file of highest precedence, unless that site file comes with hpcrun; the other is in this
    user's folder.
    """
    name = loaded_site.site.name
    layer_files = loader.list_site_files().get(name, [])
    path_files = [file for file in loaded_site.origins.values() if file.stem == name and file not in layer_files]
    highest_file = [*layer_files, *path_files][-1:]
    site_folders = [file.parent for file in highest_file if file.parent != paths.shipped_folder("site-configs")]
    return [folder / f"{name}.tested.jsonl" for folder in (*site_folders, paths.site_test_folder())]


def describe_last_test(loaded_site: LoadedSite) -> str:
    """Return the time, version and outcome of a site's last benchmark; empty if there was none."""
    records = read_records(loaded_site)
    if not records:
        return ""
    last_record = records[-1]
    return f"{format_time(last_record.time)} by hpcrun {last_record.versions.get('hpcrun', '?')}: {last_record.outcome}"


def format_time(time: str) -> str:
    """Format the time of a record as local time, without seconds."""
    from datetime import datetime

    with suppress(ValueError, OverflowError):
        return datetime.fromisoformat(time).astimezone().strftime("%Y-%m-%d %H:%M")
    return time
