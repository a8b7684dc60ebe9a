"""What tests of a site found: a line each in ``NAME.tested.jsonl``, beside the site's file if that may be."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from hpcrun import paths
from hpcrun.sites import loader

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.sites.loader import LoadedSite

Metrics = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class BenchmarkRecord:
    """One test of a site.

    Attributes:
        time: When it ended, as ``2026-05-31T14:00:00+00:00``.
        site: The site.
        user: Who tested it.
        job_id: The job's id.
        partition: The partition, empty where none was named.
        nodes: How many nodes.
        ranks: How many ranks.
        nodelist: Their names, as Slurm writes them.
        failed: The step that failed; empty where all went well.
        slow: What was slow, in words; empty where nothing was.
        versions: Of hpcrun, the MPI library, Slurm, Python, the kernel; the network devices.
        figures: Of MPI_Allreduce between all ranks: ``latency_us`` and ``bandwidth_GBps``.
        of_nodes: Figures of each node; network figures are those with the partner to which they are best.
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
        """How it went, in a word or two."""
        return f"FAILED ({self.failed})" if self.failed else "slow" if self.slow else "ok"

    def is_comparable_to(self, other: BenchmarkRecord) -> bool:
        """Return whether figures of two tests may be compared."""
        mine, theirs = ((one.site, one.partition, one.nodes, one.ranks) for one in (self, other))
        return mine == theirs


def append_record(found: LoadedSite, record: BenchmarkRecord) -> Path | None:
    """Add a record to a site's, as one write at the file's end, so that those of several users do not mix.

    Returns:
        The file; None where nothing could be written.
    """
    line = (json.dumps(asdict(record)) + "\n").encode()
    for file in _record_files(found):
        with suppress(OSError):
            if file.parent == paths.site_test_folder():
                file.parent.mkdir(parents=True, exist_ok=True)
            _append_line(file, line)
            return file
    return None


def _append_line(file: Path, line: bytes) -> None:
    # a folder that others may write to may have a link in it that leads elsewhere
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    new = not file.exists()
    number = os.open(file, flags, 0o644)
    try:
        if new and file.parent.stat().st_mode & 0o020:  # the folder is a group's
            with suppress(OSError):
                os.fchmod(number, 0o664)
        os.write(number, line)
    finally:
        os.close(number)


def read_records(found: LoadedSite) -> list[BenchmarkRecord]:
    """Return the records of a site, the oldest first; what is no record is left out."""
    records = []
    for file in _record_files(found):
        with suppress(OSError):
            records += [
                record for line in file.read_text(errors="replace").splitlines() if (record := _parse_record(line))
            ]
    return sorted(records, key=lambda record: record.time)


def _parse_record(line: str) -> BenchmarkRecord | None:
    """Return a record of any version's: fields that are not known here, or of another type, are left out."""
    try:
        values = json.loads(line)
        known = {one.name: one for one in fields(BenchmarkRecord)}
        kinds = {"int": int, "str": str}
        kept = {
            name: _escape_unprintable(value)
            for name, value in values.items()
            if name in known and isinstance(value, kinds.get(str(known[name].type), dict))
        }
        if not all(isinstance(version, str) for version in kept.get("versions", {}).values()):
            return None
        for name in ("figures", *kept.get("of_nodes", {})):
            table = kept.get("figures", {}) if name == "figures" else kept["of_nodes"][name]
            if not all(type(value) in {int, float} and value > 0 for value in table.values()):
                return None
        return BenchmarkRecord(**kept)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


def _escape_unprintable(value: Any) -> Any:
    """Return text without what steers a terminal: others may write these files."""
    if isinstance(value, dict):
        return {_escape_unprintable(key): _escape_unprintable(one) for key, one in value.items()}
    return "".join(c if c.isprintable() else "?" for c in value) if isinstance(value, str) else value


def _record_files(found: LoadedSite) -> list[Path]:
    """Return where records may be: beside the site's highest file, unless hpcrun brings it, and this user's folder."""
    name = found.site.name
    layered = loader.list_site_files().get(name, [])
    given = [file for file in found.origins.values() if file.stem == name and file not in layered]
    highest = [*layered, *given][-1:]
    beside = [file.parent for file in highest if file.parent != paths.shipped_folder("site-configs")]
    return [folder / f"{name}.tested.jsonl" for folder in (*beside, paths.site_test_folder())]


def describe_last_test(found: LoadedSite) -> str:
    """Return when a site was last tested, by which version, and how that went; empty where it never was."""
    records = read_records(found)
    if not records:
        return ""
    last = records[-1]
    return f"{format_time(last.time)} by hpcrun {last.versions.get('hpcrun', '?')}: {last.outcome}"


def format_time(time: str) -> str:
    """Return a record's time as local time, to the minute."""
    from datetime import datetime

    with suppress(ValueError, OverflowError):
        return datetime.fromisoformat(time).astimezone().strftime("%Y-%m-%d %H:%M")
    return time
