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
    """Return the runs with given job ids, the newest first, each with its submission time in s since 1970.

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
    existing_jobs, removed_jobs = _group_by_job(_match_job_ids(entries, ranges), single_id)
    if single_id:
        matches = clusters.filter_by_cluster(
            existing_jobs, site, lambda: _group_by_job(_match_recorded_ids(entries, ranges), single_id)[0]
        )
        matches = clusters.newest_per_cluster(matches)
        missing_runs += [] if matches else [run for match in removed_jobs for run in match.runs]
    else:
        existing_jobs += _find_other_ids(ids, entries, [*existing_jobs, *removed_jobs])
        groups = groupby(sorted(existing_jobs, key=lambda match: match.job_id), key=lambda match: match.job_id)
        matches = [match for _, group in groups for match in clusters.filter_by_cluster(list(group), site)]
        missing_runs += [run for match in removed_jobs for run in match.runs]
    # without a selected cluster, the user may mean a newer job whose directory was removed
    newer_removed = [
        match
        for match in removed_jobs
        if single_id and matches and not clusters.cluster_filter(site) and match.assigned > matches[0].assigned
    ]
    if purpose != "list":
        clusters.require_unambiguous([*matches, *newer_removed])
    if purpose == "modify" and not site:
        clusters.require_selected_cluster(matches)
    missing_runs += [run for match in matches for run in match.missing_runs]
    return [(run, match.submitted) for match in matches for run in match.runs]


def read_job_id(entry: Entry) -> str | None:
    """Return a job's id from its index entry, or else from its files."""
    if entry.job_id:
        return entry.job_id
    try:
        return Run(entry.directory).job_id
    except FileNotFoundError:
        return None


def _match_job_ids(entries: Iterable[Entry], ranges: Sequence[IdRange]) -> Iterator[tuple[Entry, str]]:
    """Yield the entries with job ids in given ranges, also ids from before the run was resumed, with each such id."""
    for entry in entries:
        job_ids = entry.job_ids or [read_job_id(entry) or ""]
        yield from ((entry, job_id) for job_id in job_ids if _is_in_ranges(job_id, ranges))


def _match_recorded_ids(entries: Iterable[Entry], ranges: Sequence[IdRange]) -> Iterator[tuple[Entry, str]]:
    """Do the same with the ids in the runs' files: the index lacks the ids of jobs that submitted themselves again."""
    for entry in entries:
        with suppress(FileNotFoundError):
            yield from ((entry, one) for one in Run(entry.directory).job_ids() if _is_in_ranges(one, ranges))


def _group_by_job(
    entries_and_ids: Iterable[tuple[Entry, str]], single_id: str | None
) -> tuple[list[IdMatch], list[IdMatch]]:
    """Group index entries by job, the newest first; return the jobs with a run directory and the jobs without one.

    Args:
        entries_and_ids: The index entries, each with the id that the user selected.
        single_id: The id as the user typed it, if the user typed a single one.
    """
    groups: dict[tuple[str, str], dict[Run, tuple[float, float]]] = {}
    for entry, job_id in entries_and_ids:
        job_number = job_id.partition("_")[0]
        with suppress(FileNotFoundError):
            run = Run(directory) if (directory := entry.directory).is_dir() else Run.from_index_entry(entry)
            members = groups.setdefault((job_number, entry.sweep or entry.directory_name), {})
            members[run] = _assignment_time(job_id, entry, run), entry.submitted_ns / 1e9
    existing_jobs: list[IdMatch] = []
    removed_jobs: list[IdMatch] = []
    for (job_number, _), members in groups.items():
        existing_runs = tuple(run for run in members if run.directory.is_dir())
        existing_set = set(existing_runs)
        missing_runs = tuple(run for run in members if run not in existing_set)
        match = IdMatch(
            single_id or job_number,
            existing_runs or missing_runs,
            missing_runs if existing_runs else (),
            *map(max, zip(*members.values(), strict=True)),
        )
        (existing_jobs if existing_runs else removed_jobs).append(match)
    return sorted(existing_jobs, key=lambda match: -match.assigned), removed_jobs


def _assignment_time(job_id: str, entry: Entry, run: Run) -> float:
    """Return the time in s since 1970 at which a run got a job id; for an id from before it was resumed, its creation.

    A cluster that was set up again assigns the same ids again: the id selects the job that got it last.
    """
    with suppress(OSError):
        if job_id != entry.job_id:
            return (run.directory / "job.json").stat().st_mtime
    return entry.submitted_ns / 1e9


def _find_other_ids(ids: str, entries: Sequence[Entry], matches: Sequence[IdMatch]) -> list[IdMatch]:
    """Return the jobs with ids that only the runs' files have, for the single ids of a list; a range may have gaps.

    Raises:
        HpcrunError: An id belongs to no job, and others do.
    """
    known_ids = {match.job_id for match in matches}
    parts = ids.split(",")
    unknown_ids = [part for part in parts if part.isdigit() and str(int(part)) not in known_ids]
    if not unknown_ids:
        return []
    found = _group_by_job(_match_recorded_ids(entries, [_parse_range(part) for part in unknown_ids]), None)[0]
    known_ids |= {match.job_id for match in found}
    unknown_id = next((part for part in unknown_ids if str(int(part)) not in known_ids), None)
    if unknown_id and known_ids:
        hint = f"give {','.join(part for part in parts if part != unknown_id)}; hpcrun status lists your jobs"
        raise HpcrunError(f"there is no job {unknown_id} among your runs", hint=hint)
    return found


def _parse_range(text: str) -> IdRange:
    """Parse ``12``, ``12-17``, ``12_3`` or ``12_3-7`` into the first and last job, and the first and last task."""
    job, task, last_number = re.findall(_RANGE, text)[0]
    if task:
        return (int(job), int(task)), (int(job), int(last_number or task))
    return (int(job), -1), (int(last_number or job), inf)


def _is_in_ranges(job_id: str, ranges: Sequence[IdRange]) -> bool:
    match = JOB_ID.fullmatch(job_id)
    key = (float(match["job"]), float(match["task"] or -1)) if match else (-1.0, -1.0)
    return any(minimum <= key <= maximum for minimum, maximum in ranges)
