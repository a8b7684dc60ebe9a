"""Selection of runs by job id: ``1234``, ``12-17,19``, tasks of a sweep ``12_3-7``, a job of site dee ``dee:1234``."""

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
    from hpcrun.jobs.run_index import Entry

    IdRange = tuple[tuple[float, float], tuple[float, float]]

JOB_ID = re.compile(r"(?P<job>\d{1,18})(?:_(?P<task>\d{1,9}))?", re.ASCII)
_RANGE = r"(\d{1,18})(?:_(\d{1,9}))?(?:-(\d{1,18}))?"
_RANGES = re.compile(f"{_RANGE}(?:,{_RANGE})*", re.ASCII)
_SITE_AND_IDS = re.compile(r"(?:(?P<site>[^/:]+):)?(?P<ids>[\d_,-]+)")


def split_site_and_ids(argument: str) -> tuple[str | None, str] | None:
    """Split ``SITE:IDS`` or ``IDS`` into site (or None) and ids; return None for other arguments."""
    match = _SITE_AND_IDS.fullmatch(argument)
    return (match["site"], match["ids"]) if match and _RANGES.fullmatch(match["ids"]) else None


def find_by_id(
    word: str, entries: Sequence[Entry], missing_runs: list[Run], purpose: Purpose
) -> list[tuple[Run, float]]:
    """Return the runs with given job ids, the newest first, each with its creation time in s since 1970.

    A single id selects one job or sweep per cluster that assigned it; a range selects all jobs in the range.

    Args:
        word: Job ids as typed on the command line, see `split_site_and_ids`.
        entries: All entries of the index, the newest first.
        missing_runs: List to which this function adds the runs whose directories were removed.
        purpose: The command's use of the runs.

    Raises:
        AmbiguousError: An id matches jobs of several clusters.
        HpcrunError: The job does not belong to the cluster that the environment selects.
    """
    site, ids = split_site_and_ids(word) or (None, "")
    ranges = [_parse_range(part) for part in ids.split(",")]
    single_id = ids if JOB_ID.fullmatch(ids) else None
    existing_jobs, removed_jobs = _group_by_job(
        (entry for entry in entries if _is_in_ranges(read_job_id(entry), ranges)), single_id
    )
    if single_id:
        matches = clusters.filter_by_cluster(
            existing_jobs, site, lambda: _group_by_job(_find_resubmitted_entries(ids, entries), single_id)[0]
        )
        matches = clusters.newest_per_cluster(matches)
        missing_runs += [] if matches else [run for match in removed_jobs for run in match.runs]
    else:
        _require_all_ids(ids, entries, [*existing_jobs, *removed_jobs])
        groups = groupby(sorted(existing_jobs, key=lambda match: match.job_id), key=lambda match: match.job_id)
        matches = [match for _, group in groups for match in clusters.filter_by_cluster(list(group), site)]
        missing_runs += [run for match in removed_jobs for run in match.runs]
    # without a selected cluster, the user may mean a newer job whose directory was removed
    newer_removed = [
        match
        for match in removed_jobs
        if single_id and matches and not clusters.cluster_filter(site) and match.created > matches[0].created
    ]
    if purpose != "list":
        clusters.require_unambiguous([*matches, *newer_removed])
    if purpose == "modify" and not site:
        clusters.require_selected_cluster(matches)
    missing_runs += [run for match in matches for run in match.missing_runs]
    return [(run, match.created) for match in matches for run in match.runs]


def read_job_id(entry: Entry) -> str | None:
    """Return a job's id from its index entry, or else from its files."""
    if entry.job_id:
        return entry.job_id
    try:
        return Run(entry.directory).job_id
    except FileNotFoundError:
        return None


def _group_by_job(entries: Iterable[Entry], single_id: str | None) -> tuple[list[IdMatch], list[IdMatch]]:
    """Group index entries by job, the newest first; return the jobs with a run directory and the jobs without one.

    Args:
        entries: The index entries.
        single_id: The id as the user typed it, if the user typed a single one.
    """
    groups: dict[tuple[str, str], list[tuple[Entry, Run]]] = {}
    for entry in entries:
        job_number = (read_job_id(entry) or "").partition("_")[0]
        with suppress(FileNotFoundError):
            run = Run(directory) if (directory := entry.directory).is_dir() else Run.from_index_entry(entry)
            groups.setdefault((job_number, entry.sweep or entry.directory_name), []).append((entry, run))
    existing_jobs: list[IdMatch] = []
    removed_jobs: list[IdMatch] = []
    for (job_number, _), members in groups.items():
        existing_runs = tuple(run for _, run in members if run.directory.is_dir())
        existing_set = set(existing_runs)
        missing_runs = tuple(run for _, run in members if run not in existing_set)
        match = IdMatch(
            single_id or job_number,
            existing_runs or missing_runs,
            missing_runs if existing_runs else (),
            members[0][0].created_ns / 1e9,
        )
        (existing_jobs if existing_runs else removed_jobs).append(match)
    return existing_jobs, removed_jobs


def _require_all_ids(ids: str, entries: Sequence[Entry], matches: Sequence[IdMatch]) -> None:
    """Require that each single id in a list belongs to a job; a range may have gaps."""
    known_ids = {match.job_id for match in matches}
    parts = ids.split(",")
    unknown_id = next((part for part in parts if part.isdigit() and str(int(part)) not in known_ids), None)
    if unknown_id and known_ids and not any(_find_resubmitted_entries(unknown_id, entries)):
        hint = f"give {','.join(part for part in parts if part != unknown_id)}; hpcrun status lists your jobs"
        raise HpcrunError(f"there is no job {unknown_id} among your runs", hint=hint)


def _parse_range(text: str) -> IdRange:
    """Parse ``12``, ``12-17``, ``12_3`` or ``12_3-7`` into the first and last job, and the first and last task."""
    job, task, last_number = re.findall(_RANGE, text)[0]
    if task:
        return (int(job), int(task)), (int(job), int(last_number or task))
    return (int(job), -1), (int(last_number or job), inf)


def _is_in_ranges(job_id: str | None, ranges: Sequence[IdRange]) -> bool:
    match = JOB_ID.fullmatch(job_id or "")
    key = (float(match["job"]), float(match["task"] or -1)) if match else (-1.0, -1.0)
    return any(minimum <= key <= maximum for minimum, maximum in ranges)


def _find_resubmitted_entries(job_id: str, entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the entries of runs that had a job id before they were resubmitted under another id."""
    for entry in entries:
        with suppress(FileNotFoundError):
            if job_id in Run(entry.directory).job_ids():
                yield entry
