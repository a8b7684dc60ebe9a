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
from hpcrun.jobs import ids, index
from hpcrun.jobs.runs import Run
from hpcrun.jobs.states import STATE_CODES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from hpcrun.jobs.clusters import Purpose
    from hpcrun.jobs.index import Entry

SELECTION_HINT = (
    "give a job id, 12-17, 12_3, last, a job's name, 'name*', a run directory or all; hpcrun status lists them"
)

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class MissingRunError(HpcrunError):
    """All selected runs have lost their directories.

    Args:
        message: The error message.
        runs: The selected runs.
    """

    def __init__(self, message: str, runs: Sequence[Run]) -> None:
        super().__init__(message, hint="hpcrun status --rebuild removes such runs from the index")
        self.runs = runs


def select_runs(
    words: Sequence[str],
    *,
    since: float | None = None,
    missing: list[Run] | None = None,
    purpose: Purpose = "read",
) -> list[Run]:
    """Return the selected runs, the newest first and each once.

    A job id, ``last`` and a name without wildcards select the newest matching run, or all tasks of a sweep; ranges,
    wildcards and ``all`` select every matching run. Runs whose directories were removed are left out. If two clusters
    have assigned an id, the site in front of it or the environment selects the cluster.

    Args:
        words: The selection as typed: ``1234``, ``12-17``, ``12,15-17``, tasks ``12_3`` or ``12_3-7``, of site dee
            ``dee:1234``, ``last``, ``resnet50``, ``'resnet*'``, ``./DIRECTORY``, ``all``. May be empty
            if ``since`` is given.
        since: The earliest time of submission, in s since 1970.
        missing: Receives the runs that were left out.
        purpose: ``list`` accepts jobs of several clusters with one id; ``modify`` accepts no job of another cluster
            than that which the environment selects, unless its site is in front of its id.

    Raises:
        AmbiguousError: An id matches jobs of several clusters.
        MissingRunError: The words fit only runs whose directories are gone.
        HpcrunError: A word matches no run, or the selection is empty.
    """
    if not words and since is None:
        raise HpcrunError("no job was named", hint=SELECTION_HINT)
    listed = index.list_entries()
    left_out: list[Run] = []
    found: dict[Run, float] = {}
    lost: MissingRunError | None = None
    for word in words or (["all"] if listed else []):
        try:
            found |= dict(_match_word(word, listed, left_out, purpose))
        except MissingRunError as error:
            lost = lost or error
    if lost and not found:
        raise lost
    if missing is not None:
        missing += left_out
    return [run for run, made in sorted(found.items(), key=lambda item: -item[1]) if since is None or made >= since]


def select_in_order(words: Sequence[str]) -> list[Run]:
    """Return the selected runs, each once, in the order of the words; the oldest first for each word.

    Raises:
        HpcrunError: A word matches no run.
    """
    found: dict[Path, Run] = {}
    for word in words:
        submitted = groupby(select_runs([word]), lambda run: (run.sweep or run).directory)
        for runs in reversed([list(runs) for _, runs in submitted]):  # the tasks of a sweep are in order already
            found |= {run.directory: run for run in runs}
    return list(found.values())


def select_one(word: str) -> Run:
    """Return the single selected run.

    Raises:
        HpcrunError: The word matches no run, or several.
    """
    found = select_runs([word])
    if len(found) > 1:
        what = (
            f"{word} is a sweep of {len(found)} tasks" if names_one_run(word) else f"{word} matches {len(found)} jobs"
        )
        raise HpcrunError(what, hint=f"name one of them, such as {found[0].job_id or found[0].directory}")
    return found[0]


def select_recent(count: int, ended: Collection[str], missing: list[Run]) -> list[Run]:
    """Return the newest submitted runs, and all older ones that are not known to have ended long ago.

    Args:
        count: The number of newest runs.
        ended: Names of the directories of runs that ended long ago.
        missing: Receives the runs whose directories were removed.
    """
    chosen: list[Run] = []
    for entry in index.list_entries():
        new = len(chosen) < count and ids.read_job_id(entry)
        if new or (entry.job_id and entry.directory_name not in ended):
            with suppress(FileNotFoundError):
                directory = entry.directory
                if directory.is_dir():
                    chosen.append(Run(directory))
                else:
                    missing.append(Run.from_index_entry(entry))
    return chosen


def names_one_run(word: str) -> bool:
    """Return whether a word has the form of a single run or sweep: a job id, ``last``, a name or a directory."""
    typed = ids.split_site(word)
    return bool(ids.JOB_ID.fullmatch(typed[1])) if typed else not is_wildcard(word)


def is_wildcard(word: str) -> bool:
    """Return whether a word may match unexpectedly many runs: ``all``, or a name with wildcards."""
    return word == "all" or bool(set("*?[") & set(word))


def parse_time(text: str) -> float:
    """Parse a time, and return it in s since 1970.

    Args:
        text: An age (``30m``, ``2h``, ``3d``, ``1w``), or a local date or time (``2026-05-31``,
            ``2026-05-31T14:00``).

    Raises:
        HpcrunError: It has neither form.
    """
    if match := _AGE.fullmatch(text):
        return time.time() - float(match[1]) * _SECONDS[match[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        if text.isdigit():
            raise HpcrunError(f"{text!r} has no unit", hint=f"{text}d are days, {text}h hours, {text}w weeks") from None
        hint = "give an age (30m, 2h, 3d, 1w) or a date (2026-05-31, 2026-05-31T14:00)"
        raise HpcrunError(f"{text!r} is not a time", hint=hint) from None


def _match_word(word: str, listed: list[Entry], missing: list[Run], purpose: Purpose) -> Iterator[tuple[Run, float]]:
    """Yield the runs that match a word, with their creation times; append runs without a directory to ``missing``."""
    if directory := _parse_directory(word):
        made = directory.stat().st_mtime
        tasks = [task for task in Run(directory).tasks if task.directory.is_dir()]
        yield from ((run, made - number / 1e6) for number, run in enumerate(tasks or [Run(directory)]))
        return
    before, found = len(missing), False
    if ids.split_site(word):
        numbered = ids.find_by_id(word, listed, missing, purpose)
        yield from numbered
        found = bool(numbered)
    if not found and not missing[before:]:
        for item in _match_name(word, listed, missing):
            found = True
            yield item
    if not found:
        raise _no_match_error(word, listed, missing[before:])


def _match_name(word: str, listed: list[Entry], missing: list[Run]) -> Iterator[tuple[Run, float]]:
    """Yield the runs that match a name; a name may look like a job id."""
    some = None
    for entry in _match_entries(word, listed):
        if some and names_one_run(word) and entry.sweep != some.sweep:
            break
        try:
            directory = entry.directory
        except FileNotFoundError:
            continue
        if directory.is_dir():
            some = entry
            yield Run(directory), entry.made / 1e9
        else:
            missing.append(Run.from_index_entry(entry))
        if some and names_one_run(word) and not some.sweep:
            break


def _parse_directory(word: str) -> Path | None:
    directory = Path(word)
    if ("/" in word or word in {".", ".."}) and any((directory / file).exists() for file in ("job.json", "exit.json")):
        recorded = Run(directory).recorded_path
        with suppress(OSError):  # with a link in the path, the index and the job's processes have the recorded path
            if recorded and recorded.samefile(directory):
                return recorded
        return directory.resolve()
    return None


def _match_entries(word: str, listed: list[Entry]) -> Iterable[Entry]:
    if word == "all":
        return listed
    if word == "last":  # skip runs whose submission was refused
        return (entry for entry in listed if ids.read_job_id(entry))
    return _match_entry_names(word, listed)


def _match_entry_names(word: str, listed: list[Entry]) -> Iterator[Entry]:
    """Yield the entries that match a name; read job.json only if the directory's name is ambiguous."""
    like = re.sub(r"\[[^]]*\]|[^A-Za-z0-9._-]+", "*", word)
    for entry in listed:
        surely = fnmatchcase(entry.name, word) if is_wildcard(word) else entry.name == word and "-" not in word
        unsure = "-" in entry.name and fnmatchcase(entry.name, like)
        if surely or word in {entry.directory_name, entry.sweep} or (unsure and _has_name(word, entry)):
            yield entry


def _has_name(word: str, entry: Entry) -> bool:
    try:
        name = Run(entry.directory).name
    except FileNotFoundError:
        return False
    return name == word or (is_wildcard(word) and fnmatchcase(name, word))


def _no_match_error(word: str, listed: list[Entry], missing: list[Run]) -> HpcrunError:
    if not listed:
        return HpcrunError("there are no runs yet", hint="hpcrun submit lenet5 --wait makes one")
    if missing:
        what = (
            f"the run directory of {word} is" if len(missing) == 1 else f"{len(missing)} run directories of {word} are"
        )
        return MissingRunError(f"{what} gone: {missing[0].directory}", missing)
    if is_wildcard(word):
        return HpcrunError(f"no run's name matches {word!r}", hint=SELECTION_HINT)
    if ids.split_site(word) and not word.isdigit():
        return HpcrunError(f"there is no job {word} among your runs", hint=SELECTION_HINT)
    like = closest_match(word, list(dict.fromkeys(entry.name for entry in listed)))
    kind = "job" if word.isdigit() else "run"
    hint = f"did you mean {like}?" if like and not word.isdigit() else SELECTION_HINT
    if word.upper() in STATE_CODES.values():
        hint = f"hpcrun status --state {word} lists the jobs in that state; commas separate several"
    return HpcrunError(f"there is no {kind} {word!r} among your runs", hint=hint)
