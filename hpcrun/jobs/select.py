"""Which runs somebody means: job ids and ranges of them, ``last``, names with wildcards, run directories, ``all``."""

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

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from hpcrun.jobs.index import Entry

FORMS = "give a job id, 12-17, 12_3, last, a job's name, 'name*', a run directory or all; hpcrun status lists them"

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class GoneError(HpcrunError):
    """Only runs were meant whose directories are not there any more.

    Args:
        message: Which.
        runs: They.
    """

    def __init__(self, message: str, runs: Sequence[Run]) -> None:
        super().__init__(message, hint="hpcrun status --rebuild takes such runs off the list")
        self.runs = runs


def select(
    words: Sequence[str],
    *,
    since: float | None = None,
    gone: list[Run] | None = None,
    several: bool = False,
) -> list[Run]:
    """Return the runs that are meant, the newest first and each once.

    A job id, ``last`` and a name without wildcards mean one run, the newest that fits, or all tasks of a sweep; ranges,
    wildcards and ``all`` mean every run that fits. Run directories that are not there any more are left out. Of an id
    that two clusters have given, the cluster is meant that the word or the environment names.

    Args:
        words: As typed: ``1234``, ``12-17``, ``12,15-17``, of a sweep ``12_3`` or ``12_3-7``, of site dee's cluster
            ``dee:1234``, ``last``, ``resnet50``, ``'resnet*'``, ``./DIRECTORY``, ``all``. None: all runs, if they are
            told apart by ``since``.
        since: The earliest time of submission, in s since 1970.
        gone: Gets the runs that were left out.
        several: Whether an id may mean jobs of several clusters: nothing is done to them.

    Raises:
        AmbiguousError: An id means jobs of several clusters, and must not.
        GoneError: The words fit only runs whose directories are gone.
        HpcrunError: A word fits no run, or there is no word and nothing else to choose by.
    """
    if not words and since is None:
        raise HpcrunError("no job was named", hint=FORMS)
    listed = index.entries()
    missing: list[Run] = []
    found: dict[Run, float] = {}
    lost: GoneError | None = None
    for word in words or (["all"] if listed else []):
        try:
            found |= dict(_matching(word, listed, missing, several=several))
        except GoneError as error:
            lost = lost or error
    if lost and not found:
        raise lost
    if gone is not None:
        gone += missing
    return [run for run, made in sorted(found.items(), key=lambda item: -item[1]) if since is None or made >= since]


def in_order(words: Sequence[str]) -> list[Run]:
    """Return the runs that are meant, each once, in the order of the words; of one word the oldest first.

    Raises:
        HpcrunError: A word fits no run.
    """
    found: dict[Path, Run] = {}
    for word in words:
        submitted = groupby(select([word]), lambda run: (run.sweep or run).directory)
        for runs in reversed([list(runs) for _, runs in submitted]):  # the tasks of a sweep are in order already
            found |= {run.directory: run for run in runs}
    return list(found.values())


def one(word: str) -> Run:
    """Return the one run that is meant.

    Raises:
        HpcrunError: There is none, or the word means several.
    """
    found = select([word])
    if len(found) > 1:
        what = f"{word} is a sweep of {len(found)} tasks" if means_one(word) else f"{word} means {len(found)} jobs"
        raise HpcrunError(what, hint=f"name one of them, such as {found[0].job_id or found[0].directory}")
    return found[0]


def recent(count: int, ended: Collection[str], gone: list[Run]) -> list[Run]:
    """Return the newest runs that were submitted, and all older ones that are not known to have ended long ago.

    Args:
        count: How many runs count as new.
        ended: Names of the run directories that are known to have.
        gone: Gets the runs whose directories are not there any more.
    """
    chosen: list[Run] = []
    for entry in index.entries():
        new = len(chosen) < count and ids.job_id(entry)
        if new or (entry.job_id and entry.directory_name not in ended):
            with suppress(FileNotFoundError):
                directory = entry.directory
                if directory.is_dir():
                    chosen.append(Run(directory))
                else:
                    gone.append(Run.gone(entry))
    return chosen


def means_one(word: str) -> bool:
    """Return whether a word means one run or sweep by its form: a job id, ``last``, a name or a directory."""
    typed = ids.split(word)
    return bool(ids.ONE.fullmatch(typed[1])) if typed else not broad(word)


def broad(word: str) -> bool:
    """Return whether a word may mean more runs than its writer thinks of: ``all``, or a name with wildcards."""
    return word == "all" or bool(set("*?[") & set(word))


def moment(text: str) -> float:
    """Return the time that somebody wrote, in s since 1970.

    Args:
        text: How long ago (``30m``, ``2h``, ``3d``, ``1w``), or a local date or time (``2026-05-31``,
            ``2026-05-31T14:00``).

    Raises:
        HpcrunError: Neither.
    """
    if match := _SPAN.fullmatch(text):
        return time.time() - float(match[1]) * _SECONDS[match[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        hint = "how long ago (30m, 2h, 3d, 1w), or a date (2026-05-31, 2026-05-31T14:00)"
        raise HpcrunError(f"{text!r} is no time", hint=hint) from None


def _matching(word: str, listed: list[Entry], gone: list[Run], *, several: bool) -> Iterator[tuple[Run, float]]:
    """Yield the runs that a word means, and when they were made; ``gone`` gets those without a directory."""
    if directory := _directory(word):
        made = directory.stat().st_mtime
        tasks = [task for task in Run(directory).tasks if task.directory.is_dir()]
        yield from ((run, made - number / 1e6) for number, run in enumerate(tasks or [Run(directory)]))
        return
    before, found = len(gone), False
    if ids.split(word):
        numbered = ids.numbered(word, listed, gone, several=several)
        yield from numbered
        found = bool(numbered)
    if not found and not gone[before:]:
        for item in _fitting_so(word, listed, gone):
            found = True
            yield item
    if not found:
        raise _nothing(word, listed, gone[before:])


def _fitting_so(word: str, listed: list[Entry], gone: list[Run]) -> Iterator[tuple[Run, float]]:
    """Yield the runs that a word means which is no id, or is also a name."""
    some = None
    for entry in _fitting(word, listed):
        if some and means_one(word) and entry.sweep != some.sweep:
            break
        try:
            directory = entry.directory
        except FileNotFoundError:
            continue
        if directory.is_dir():
            some = entry
            yield Run(directory), entry.made / 1e9
        else:
            gone.append(Run.gone(entry))
        if some and means_one(word) and not some.sweep:
            break


def _directory(word: str) -> Path | None:
    directory = Path(word)
    if ("/" in word or word in {".", ".."}) and any((directory / file).exists() for file in ("job.json", "exit.json")):
        recorded = Run(directory).recorded
        with suppress(OSError):  # where a folder above is a link, the list of runs and a job's processes have that path
            if recorded and recorded.samefile(directory):
                return recorded
        return directory.resolve()
    return None


def _fitting(word: str, listed: list[Entry]) -> Iterable[Entry]:
    if word == "all":
        return listed
    if word == "last":  # the last job is meant, not a directory whose job the scheduler refused
        return (entry for entry in listed if ids.job_id(entry))
    return _named(word, listed)


def _named(word: str, listed: list[Entry]) -> Iterator[Entry]:
    """Yield the runs of a name; job.json is opened only where the directory's form of it leaves a doubt."""
    like = re.sub(r"\[[^]]*\]|[^A-Za-z0-9._-]+", "*", word)
    for entry in listed:
        surely = fnmatchcase(entry.name, word) if broad(word) else entry.name == word and "-" not in word
        unsure = "-" in entry.name and fnmatchcase(entry.name, like)
        if surely or word in {entry.directory_name, entry.sweep} or (unsure and _fits(word, entry)):
            yield entry


def _fits(word: str, entry: Entry) -> bool:
    try:
        name = Run(entry.directory).name
    except FileNotFoundError:
        return False
    return name == word or (broad(word) and fnmatchcase(name, word))


def _nothing(word: str, listed: list[Entry], gone: list[Run]) -> HpcrunError:
    if not listed:
        return HpcrunError("there are no runs yet", hint="hpcrun submit lenet5 --wait makes one")
    if gone:
        what = f"the run directory of {word} is" if len(gone) == 1 else f"{len(gone)} run directories of {word} are"
        return GoneError(f"{what} gone: {gone[0].directory}", gone)
    if broad(word):
        return HpcrunError(f"no run's name matches {word!r}", hint=FORMS)
    if ids.split(word) and not word.isdigit():
        return HpcrunError(f"there is no job {word} among your runs", hint=FORMS)
    like = closest_match(word, list(dict.fromkeys(entry.name for entry in listed)))
    kind = "job" if word.isdigit() else "run"
    hint = f"did you mean {like}?" if like and not word.isdigit() else FORMS
    return HpcrunError(f"there is no {kind} {word!r} among your runs", hint=hint)
