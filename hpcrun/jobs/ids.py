"""Runs selected by job id: ``1234``, ``12-17,19``, tasks of a sweep ``12_3-7``, a site's job ``dee:1234``."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.jobs import clusters
from hpcrun.jobs.clusters import IdMatch
from hpcrun.jobs.runs import Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hpcrun.jobs.clusters import Purpose
    from hpcrun.jobs.index import Entry

    IdRange = tuple[tuple[float, float], tuple[float, float]]

JOB_ID = re.compile(r"(?P<job>\d{1,18})(?:_(?P<task>\d{1,9}))?", re.ASCII)
_RANGE = r"(\d{1,18})(?:_(\d{1,9}))?(?:-(\d{1,18}))?"
_RANGES = re.compile(f"{_RANGE}(?:,{_RANGE})*", re.ASCII)
_SITE_AND_IDS = re.compile(r"(?:(?P<site>[^/:]+):)?(?P<ids>[\d_,-]+)")


def split_site(word: str) -> tuple[str | None, str] | None:
    """Split ``SITE:IDS`` into the site, if given, and the ids; return None for other words."""
    match = _SITE_AND_IDS.fullmatch(word)
    return (match["site"], match["ids"]) if match and _RANGES.fullmatch(match["ids"]) else None


def find_by_id(word: str, listed: Sequence[Entry], missing: list[Run], purpose: Purpose) -> list[tuple[Run, float]]:
    """Return the runs with given job ids, the newest first, and when each was created, in s since 1970.

    A single id selects one job or sweep per cluster that assigned it; a range selects all jobs in it.

    Args:
        word: As typed; see `split_site`.
        listed: The index's entries, the newest first.
        missing: Receives the runs whose directories were removed.
        purpose: What the runs are for.

    Raises:
        AmbiguousError: An id matches jobs of several clusters.
        HpcrunError: An id matches only a job of another cluster than that which the environment selects.
    """
    site, ids = split_site(word) or (None, "")
    ranges = [_parse_range(part) for part in ids.split(",")]
    typed = ids if JOB_ID.fullmatch(ids) else None
    existing, removed = _group_by_job((entry for entry in listed if _is_in_ranges(read_job_id(entry), ranges)), typed)
    if typed:
        matches = clusters.filter_by_cluster(
            existing, site, lambda: _group_by_job(_find_resubmitted(ids, listed), typed)[0]
        )
        matches = clusters.newest_per_cluster(matches)
        missing += [] if matches else [run for match in removed for run in match.runs]
    else:
        _require_all(ids, listed, [*existing, *removed])
        same = groupby(sorted(existing, key=lambda match: match.job_id), key=lambda match: match.job_id)
        matches = [match for _, some in same for match in clusters.filter_by_cluster(list(some), site)]
        missing += [run for match in removed for run in match.runs]
    # without a selected cluster, a newer job whose directory was removed may be the intended one
    doubtful = [
        match
        for match in removed
        if typed and matches and not clusters.cluster_filter(site) and match.created > matches[0].created
    ]
    if purpose != "list":
        clusters.require_unambiguous([*matches, *doubtful])
    if purpose == "modify" and not site:
        clusters.require_selected_cluster(matches)
    missing += [run for match in matches for run in match.missing]
    return [(run, match.created) for match in matches for run in match.runs]


def read_job_id(entry: Entry) -> str | None:
    """Return a job's id from its index entry, or else from its files."""
    if entry.job_id:
        return entry.job_id
    try:
        return Run(entry.directory).job_id
    except FileNotFoundError:
        return None


def _group_by_job(entries: Iterable[Entry], typed: str | None) -> tuple[list[IdMatch], list[IdMatch]]:
    """Group index entries by job, the newest first: jobs with a directory, and jobs without.

    Args:
        entries: The index entries.
        typed: The id as the user typed it, if it is a single one.
    """
    together: dict[tuple[str, str], list[tuple[Entry, Run]]] = {}
    for entry in entries:
        number = (read_job_id(entry) or "").partition("_")[0]
        with suppress(FileNotFoundError):
            run = Run(directory) if (directory := entry.directory).is_dir() else Run.from_index_entry(entry)
            together.setdefault((number, entry.sweep or entry.directory_name), []).append((entry, run))
    existing: list[IdMatch] = []
    removed: list[IdMatch] = []
    for (number, _), listed in together.items():
        found = tuple(run for _, run in listed if run.directory.is_dir())
        known = set(found)
        missing = tuple(run for _, run in listed if run not in known)
        one = IdMatch(typed or number, found or missing, missing if found else (), listed[0][0].made / 1e9)
        (existing if found else removed).append(one)
    return existing, removed


def _require_all(ids: str, listed: Sequence[Entry], matches: Sequence[IdMatch]) -> None:
    """Refuse a list with a job that does not exist; a range may have gaps."""
    known = {match.job_id for match in matches}
    parts = ids.split(",")
    absent = next((part for part in parts if part.isdigit() and str(int(part)) not in known), None)
    if absent and known and not any(_find_resubmitted(absent, listed)):
        hint = f"give {','.join(part for part in parts if part != absent)}; hpcrun status lists your jobs"
        raise HpcrunError(f"there is no job {absent} among your runs", hint=hint)


def _parse_range(text: str) -> IdRange:
    """Parse ``12``, ``12-17``, ``12_3`` or ``12_3-7`` into the first and the last job and task."""
    job, task, last = re.findall(_RANGE, text)[0]
    if task:
        return (int(job), int(task)), (int(job), int(last or task))
    return (int(job), -1), (int(last or job), inf)


def _is_in_ranges(job_id: str | None, ranges: Sequence[IdRange]) -> bool:
    match = JOB_ID.fullmatch(job_id or "")
    own = (float(match["job"]), float(match["task"] or -1)) if match else (-1.0, -1.0)
    return any(low <= own <= high for low, high in ranges)


def _find_resubmitted(job_id: str, listed: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the runs that had a job id before they resubmitted themselves under another one."""
    for entry in listed:
        with suppress(FileNotFoundError):
            if job_id in Run(entry.directory).job_ids():
                yield entry
