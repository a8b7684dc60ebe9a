"""Runs by their jobs' ids: ``1234``, ``12-17,19``, of a sweep ``12_3-7``, and of one site's cluster ``dee:1234``."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING

from hpcrun.jobs import clusters
from hpcrun.jobs.clusters import Submission
from hpcrun.jobs.runs import Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hpcrun.jobs.index import Entry

    Span = tuple[tuple[float, float], tuple[float, float]]

ONE = re.compile(r"(?P<job>\d{1,18})(?:_(?P<task>\d{1,9}))?", re.ASCII)
_SPAN = r"(\d{1,18})(?:_(\d{1,9}))?(?:-(\d{1,18}))?"
_MANY = re.compile(f"{_SPAN}(?:,{_SPAN})*", re.ASCII)
_OF_SITE = re.compile(r"(?:(?P<site>[^/:]+):)?(?P<ids>[\d_,-]+)")


def split(word: str) -> tuple[str | None, str] | None:
    """Return the site, if it is named, and the ids that a word has; None for a word that is no ids."""
    match = _OF_SITE.fullmatch(word)
    return (match["site"], match["ids"]) if match and _MANY.fullmatch(match["ids"]) else None


def numbered(word: str, listed: Sequence[Entry], gone: list[Run], *, several: bool) -> list[tuple[Run, float]]:
    """Return the runs whose jobs have ids, the newest first, and when each was made, in s since 1970.

    One id means one job, or sweep, of each cluster that has given it; ranges mean all.

    Args:
        word: As typed; see `split`.
        listed: The index's entries, the newest first.
        gone: Gets the runs whose directories are not there.
        several: Whether an id may mean jobs of several clusters.

    Raises:
        AmbiguousError: One does, and may not.
    """
    site, ids = split(word) or (None, "")
    spans = [_span(part) for part in ids.split(",")]
    shown = ids if ONE.fullmatch(ids) else None
    there, lost = _submissions((entry for entry in listed if _in(job_id(entry), spans)), shown)
    if shown:
        found = clusters.meant(there, site, lambda: _submissions(_chained(ids, listed), shown)[0])
        found = clusters.newest(found)
        gone += [] if found else [run for one in lost for run in one.runs]
    else:
        same = groupby(sorted(there, key=lambda one: one.job_id), key=lambda one: one.job_id)
        found = [one for _, some in same for one in clusters.meant(list(some), site)]
        gone += [run for one in lost for run in one.runs]
    # where nobody said which cluster is meant, a newer job may be that has lost its directory
    doubtful = [one for one in lost if shown and found and not clusters.named(site) and one.made > found[0].made]
    if not several:
        clusters.require_one([*found, *doubtful])
    gone += [run for one in found for run in one.gone]
    return [(run, one.made) for one in found for run in one.runs]


def job_id(entry: Entry) -> str | None:
    """Return a job's id; only where its link does not have it, a file is opened."""
    if entry.job_id:
        return entry.job_id
    try:
        return Run(entry.directory).job_id
    except FileNotFoundError:
        return None


def _submissions(entries: Iterable[Entry], shown: str | None) -> tuple[list[Submission], list[Submission]]:
    """Return what was submitted, the newest first: that which has a directory, and that which has none any more.

    Args:
        entries: What is listed of it.
        shown: The id as it was typed, where it is one.
    """
    together: dict[tuple[str, str], list[tuple[Entry, Run]]] = {}
    for entry in entries:
        number = (job_id(entry) or "").partition("_")[0]
        with suppress(FileNotFoundError):
            run = Run(directory) if (directory := entry.directory).is_dir() else Run.gone(entry)
            together.setdefault((number, entry.sweep or entry.directory_name), []).append((entry, run))
    there: list[Submission] = []
    lost: list[Submission] = []
    for (number, _), listed in together.items():
        here = tuple(run for _, run in listed if run.directory.is_dir())
        missing = tuple(run for _, run in listed if run not in here)
        one = Submission(shown or number, here or missing, missing if here else (), listed[0][0].made / 1e9)
        (there if here else lost).append(one)
    return there, lost


def _span(text: str) -> Span:
    """Return the first and the last job and task that ``12``, ``12-17``, ``12_3`` or ``12_3-7`` means."""
    job, task, last = re.findall(_SPAN, text)[0]
    if task:
        return (int(job), int(task)), (int(job), int(last or task))
    return (int(job), -1), (int(last or job), inf)


def _in(job_id: str | None, spans: Sequence[Span]) -> bool:
    match = ONE.fullmatch(job_id or "")
    own = (float(match["job"]), float(match["task"] or -1)) if match else (-1.0, -1.0)
    return any(low <= own <= high for low, high in spans)


def _chained(job_id: str, listed: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the runs that submitted themselves again, and were such a job, which their links do not say."""
    for entry in listed:
        with suppress(FileNotFoundError):
            if job_id in Run(entry.directory).job_ids():
                yield entry
