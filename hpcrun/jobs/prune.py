"""Removing run directories of jobs that have ended."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.jobs import index, ledger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hpcrun.jobs.runs import Run

RESULTS = frozenset({
    "job.json", "job.sh", "submitted.json", "refused.json", "starts.jsonl", "exit.json", "cleaned.json",
    "result.json", "metrics.jsonl", "provenance",
})  # fmt: skip
"""What stays with the results: all by which a run is told, compared and repeated."""


def ended_at(run: Run) -> float:
    """Return when a job ended, as far as its files say, in s since 1970: else when it was submitted or made."""
    record = run.ended()
    if record:
        return float(record["ended"])
    return float(run.submission.get("submitted") or (run.directory / "job.json").stat().st_mtime)


def size(run: Run, *, keep_results: bool) -> int:
    """Return the bytes on disk that removing a run directory would free.

    Args:
        run: The run.
        keep_results: Whether `RESULTS` stay.
    """
    total = 0
    for entry in _children(run.directory):
        if keep_results and entry.name in RESULTS:
            continue
        total += _bytes(entry)
        if entry.is_dir(follow_symlinks=False):
            for folder, folders, files in os.walk(entry.path):
                for name in (*folders, *files):
                    with suppress(OSError):
                        total += os.lstat(os.path.join(folder, name)).st_blocks * 512  # noqa: PTH118 - many files
    return total


def remove(run: Run, *, keep_results: bool) -> None:
    """Remove a run directory, or all but its results; links in it go, and what they lead to stays.

    Results go last: what is interrupted can be begun again.

    Args:
        run: The run.
        keep_results: Whether `RESULTS` stay.

    Raises:
        OSError: Something cannot be removed; the run stays on the list.
    """
    for entry in _children(run.directory):
        if entry.name in RESULTS:
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            Path(entry.path).unlink()
    if keep_results:
        return
    sweep = run.sweep
    shutil.rmtree(run.directory)
    if sweep and not any(task.directory.exists() for task in sweep.tasks):
        shutil.rmtree(sweep.directory)


def forget(directories: Iterable[Path]) -> None:
    """Take runs off the list.

    Args:
        directories: Their directories, which are gone.
    """
    names = {directory.name: directory for directory in directories}
    for entry in index.entries():
        with suppress(FileNotFoundError):
            if names.get(entry.directory_name) == entry.directory:
                index.forget(entry)
    for notes in ("ended", "last"):
        ledger.change(notes, {}, drop=names)


def _children(directory: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(directory) as entries:
        yield from list(entries)


def _bytes(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * 512
    except OSError:
        return 0
