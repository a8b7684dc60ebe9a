"""Selection of runs on the command line: job ids and ranges, ``last``, names with wildcards, directories, ``all``."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError, closest_match
from hpcrun.jobs import ids, run_index
from hpcrun.jobs.runs import Run
from hpcrun.jobs.states import STATE_CODES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from hpcrun.jobs.clusters import Purpose
    from hpcrun.jobs.run_index import Entry

SELECTION_HINT = (
    "give a job id, 12-17, 12_3, last, a job's name, 'name*', a run directory or all; hpcrun status lists them"
)

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class MissingRunError(HpcrunError):
    """The directories of all selected runs were removed.

    Args:
        message: The error message.
        runs: The selected runs, whose directories were removed.
    """

    def __init__(self, message: str, runs: Sequence[Run]) -> None:
        super().__init__(message, hint="hpcrun status --rebuild removes such runs from the index")
        self.runs = runs


def select_runs(
    words: Sequence[str],
    *,
    since: float | None = None,
    missing_runs: list[Run] | None = None,
    purpose: Purpose = "read",
) -> list[Run]:
    """Return the selected runs without duplicates, the newest first.

    A job id, ``last`` and a name without wildcards select the newest matching run, or all tasks of a sweep; ranges,
    wildcards and ``all`` select every matching run. Runs whose directories were removed are left out. If two clusters
    have assigned an id, the site in front of the id or the environment selects the cluster.

    Args:
        words: The selection as typed: ``1234``, ``12-17``, ``12,15-17``, tasks ``12_3`` or ``12_3-7``, of site dee
            ``dee:1234``, ``last``, ``resnet50``, ``'resnet*'``, ``./DIRECTORY``, ``all``. May be empty
            if ``since`` is given.
        since: The earliest time of submission, in s since 1970.
        missing_runs: List to which this function adds the matching runs whose directories were removed.
        purpose: ``list`` accepts jobs of several clusters with one id; ``modify`` accepts a job outside the cluster
            that the environment selects only if the user typed the job's site before the id.

    Raises:
        AmbiguousError: An id matches jobs of several clusters.
        MissingRunError: The arguments match only runs whose directories were removed.
        HpcrunError: An argument matches no run, or the selection is empty.
    """
    if not words and since is None:
        raise HpcrunError("no job was named", hint=SELECTION_HINT)
    entries = run_index.list_entries()
    removed_runs: list[Run] = []
    submission_times: dict[Run, float] = {}
    missing_error: MissingRunError | None = None
    for word in words or (["all"] if entries else []):
        try:
            submission_times |= dict(_match_word(word, entries, removed_runs, purpose))
        except MissingRunError as error:
            missing_error = missing_error or error
    if missing_error and not submission_times:
        raise missing_error
    if missing_runs is not None:
        missing_runs += removed_runs
    return [run for run in _sort_by_time(submission_times) if since is None or submission_times[run] >= since]


def _sort_by_time(submission_times: Mapping[Run, float]) -> list[Run]:
    """Return runs, the newest first; the tasks of a sweep stay together in order, also if one of them was resumed."""
    folders = {run: (run.sweep or run).directory for run in submission_times}
    newest_times: dict[Path, float] = {}
    for run, submission_time in submission_times.items():
        newest_times[folders[run]] = max(submission_time, newest_times.get(folders[run], 0.0))
    return sorted(submission_times, key=lambda run: (-newest_times[folders[run]], run.task_number or 0))


def select_in_order(words: Sequence[str]) -> list[Run]:
    """Return the selected runs without duplicates, in the order of the arguments; for each argument, the oldest first.

    Raises:
        HpcrunError: An argument matches no run.
    """
    selected: dict[Path, Run] = {}
    for word in words:
        submissions = groupby(select_runs([word]), lambda run: (run.sweep or run).directory)
        for runs in reversed([list(runs) for _, runs in submissions]):  # the tasks of a sweep are in order already
            selected |= {run.directory: run for run in runs}
    return list(selected.values())


def select_one(word: str) -> Run:
    """Return the single selected run.

    Raises:
        HpcrunError: The argument matches no run, or several.
    """
    runs = select_runs([word])
    if len(runs) > 1:
        message = (
            f"{word} is a sweep of {len(runs)} tasks" if selects_one_run(word) else f"{word} matches {len(runs)} jobs"
        )
        raise HpcrunError(message, hint=f"name one of them, such as {runs[0].job_id or runs[0].directory}")
    return runs[0]


def select_recent(count: int, ended_names: Collection[str], missing_runs: list[Run]) -> list[Run]:
    """Return the newest submitted runs, and all older runs that are not known to have ended long ago.

    Args:
        count: The number of newest runs.
        ended_names: Names of the directories of runs that ended long ago.
        missing_runs: List to which this function adds the runs whose directories were removed.
    """
    selected: list[Run] = []
    for entry in run_index.list_entries():
        is_new = len(selected) < count and ids.read_job_id(entry)
        if is_new or (entry.job_id and entry.directory_name not in ended_names):
            with suppress(FileNotFoundError):
                directory = entry.directory
                if directory.is_dir():
                    selected.append(Run(directory))
                else:
                    missing_runs.append(Run.from_index_entry(entry))
    return selected


def selects_one_run(word: str) -> bool:
    """Return whether an argument can select only one run or sweep: a job id, ``last``, a name or a directory."""
    site_and_ids = ids.split_site_and_ids(word)
    return bool(ids.JOB_ID.fullmatch(site_and_ids[1])) if site_and_ids else not is_wildcard(word)


def is_wildcard(word: str) -> bool:
    """Return whether an argument may match many runs: ``all``, or a name with wildcards."""
    return word == "all" or bool(set("*?[") & set(word))


def parse_time(time_text: str) -> float:
    """Parse a time, and return it in s since 1970.

    Args:
        time_text: An age (``30m``, ``2h``, ``3d``, ``1w``), or a local date or time (``2026-05-31``,
            ``2026-05-31T14:00``).

    Raises:
        HpcrunError: The text is neither an age nor a date.
    """
    if match := _AGE.fullmatch(time_text):
        return time.time() - float(match[1]) * _SECONDS_PER_UNIT[match[2]]
    try:
        return datetime.fromisoformat(time_text).timestamp()
    except (ValueError, OverflowError):
        if time_text.isdigit():
            raise HpcrunError(
                f"{time_text!r} has no unit", hint=f"{time_text}d are days, {time_text}h hours, {time_text}w weeks"
            ) from None
        hint = "give an age (30m, 2h, 3d, 1w) or a date (2026-05-31, 2026-05-31T14:00)"
        raise HpcrunError(f"{time_text!r} is not a time", hint=hint) from None


def _match_word(
    word: str, entries: list[Entry], missing_runs: list[Run], purpose: Purpose
) -> Iterator[tuple[Run, float]]:
    """Yield the runs that match an argument, with their submission times; append removed runs to `missing_runs`."""
    if directory := _parse_directory(word):
        creation_time = directory.stat().st_mtime
        tasks = [task for task in Run(directory).tasks if task.directory.is_dir()]
        yield from ((run, creation_time - number / 1e6) for number, run in enumerate(tasks or [Run(directory)]))
        return
    missing_before, has_match = len(missing_runs), False
    if ids.split_site_and_ids(word):
        id_matches = ids.find_by_id(word, entries, missing_runs, purpose)
        yield from id_matches
        has_match = bool(id_matches)
    if not has_match and not missing_runs[missing_before:]:
        for item in _match_name(word, entries, missing_runs):
            has_match = True
            yield item
    if not has_match:
        raise _no_match_error(word, entries, missing_runs[missing_before:])


def _match_name(word: str, entries: list[Entry], missing_runs: list[Run]) -> Iterator[tuple[Run, float]]:
    """Yield the runs that match a name; a name may look like a job id."""
    first_match = None
    for entry in _match_entries(word, entries):
        if first_match and selects_one_run(word) and entry.sweep != first_match.sweep:
            break
        try:
            directory = entry.directory
        except FileNotFoundError:
            continue
        if directory.is_dir():
            first_match = entry
            yield Run(directory), entry.submitted_ns / 1e9
        else:
            missing_runs.append(Run.from_index_entry(entry))
        if first_match and selects_one_run(word) and not first_match.sweep:
            break


def _parse_directory(word: str) -> Path | None:
    directory = Path(word)
    if ("/" in word or word in {".", ".."}) and any((directory / file).exists() for file in ("job.json", "exit.json")):
        recorded_path = Run(directory).recorded_path
        # the index and the job's processes use the recorded path, even if this path contains a symbolic link
        with suppress(OSError):
            if recorded_path and recorded_path.samefile(directory):
                return recorded_path
        return directory.resolve()
    return None


def _match_entries(word: str, entries: list[Entry]) -> Iterable[Entry]:
    if word == "all":
        return entries
    if word == "last":  # skip runs whose submission was refused
        return (entry for entry in entries if ids.read_job_id(entry))
    return _match_entry_names(word, entries)


def _match_entry_names(word: str, entries: list[Entry]) -> Iterator[Entry]:
    """Yield the entries that match a name; read job.json only if the directory's name is ambiguous."""
    pattern = re.sub(r"\[[^]]*\]|[^A-Za-z0-9._-]+", "*", word)
    for entry in entries:
        is_match = fnmatchcase(entry.name, word) if is_wildcard(word) else entry.name == word and "-" not in word
        may_match = "-" in entry.name and fnmatchcase(entry.name, pattern)
        if is_match or word in {entry.directory_name, entry.sweep} or (may_match and _has_name(word, entry)):
            yield entry


def _has_name(word: str, entry: Entry) -> bool:
    try:
        name = Run(entry.directory).name
    except FileNotFoundError:
        return False
    return name == word or (is_wildcard(word) and fnmatchcase(name, word))


def _no_match_error(word: str, entries: list[Entry], missing_runs: list[Run]) -> HpcrunError:
    if not entries:
        return HpcrunError("there are no runs yet", hint="hpcrun submit lenet5 --wait makes one")
    if missing_runs:
        subject = (
            f"the run directory of {word} is"
            if len(missing_runs) == 1
            else f"{len(missing_runs)} run directories of {word} are"
        )
        return MissingRunError(f"{subject} gone: {missing_runs[0].directory}", missing_runs)
    if word == "last":
        return HpcrunError("none of your runs was submitted", hint="hpcrun submit lenet5 --wait submits one")
    if is_wildcard(word):
        return HpcrunError(f"no run's name matches {word!r}", hint=SELECTION_HINT)
    if ids.split_site_and_ids(word) and not word.isdigit():
        return HpcrunError(f"there is no job {word} among your runs", hint=SELECTION_HINT)
    suggestion = closest_match(word, list(dict.fromkeys(entry.name for entry in entries)))
    kind = "job" if word.isdigit() else "run"
    hint = f"did you mean {suggestion}?" if suggestion and not word.isdigit() else SELECTION_HINT
    if word.upper() in STATE_CODES.values():
        hint = f"hpcrun status --state {word} lists the jobs in that state; commas separate several"
    return HpcrunError(f"there is no {kind} {word!r} among your runs", hint=hint)
