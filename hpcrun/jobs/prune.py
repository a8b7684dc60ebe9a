"""Removing run directories of jobs that have ended."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import removal, secrets, write_access
from hpcrun.jobs import index, ledger
from hpcrun.jobs.runs import Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

RESULTS = frozenset({
    "job.json", "job.sh", "submitted.json", "refused.json", "starts.jsonl", "exit.json", "cleaned.json",
    "result.json", "metrics.jsonl", "provenance", secrets.SECRETS_FILE,
})  # fmt: skip
"""What stays with the results: all by which a run is told, compared and repeated."""

OF_SWEEP = RESULTS | {"code", "cuda", "logs", "shell"}
"""What hpcrun writes into a sweep's own directory, beside its tasks' directories."""


def refusal(run: Run) -> str | None:
    """Return why a run directory must not be removed, whatever became of its job; None where it may be.

    Only what hpcrun made for that run goes: its record must be readable, this user's, and of that very directory.

    Args:
        run: The run.
    """
    directory = run.directory
    if why := _not_its_record(run):
        return why
    for what, kept in (("the current folder", Path.cwd()), ("your home directory", Path(os.environ.get("HOME", "/")))):
        if kept.resolve().is_relative_to(directory.resolve()):
            return f"{what} is in it"
    listed = {task.directory for task in run.tasks}
    held = next((one for one in _runs_in(directory) if one not in listed), None)
    return f"it has another run in it: {held}" if held else None


def _not_its_record(run: Run) -> str | None:
    """Return why a directory's job.json does not say that hpcrun made it for this user's run; None where it does."""
    directory, recorded = run.directory, Path(run.spec.run_dir)
    if not run.spec.said:
        return "its job.json cannot be read: only that says what of it is hpcrun's"
    if not index.is_made(directory.name) or recorded.name != directory.name:
        return f"it is no run directory: it has the job.json of {recorded}"
    if recorded.exists() and not recorded.samefile(directory):
        return f"it is a copy of {recorded}"
    who = write_access.find_other_writer(directory / "job.json", file_only=True)
    return f"its job.json may be somebody else's: {who}" if who else None


def _runs_in(directory: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(directory):
        if "job.json" in files and folder != str(directory) and index.is_made(os.path.basename(folder)):  # noqa: PTH119
            yield Path(folder)
            folders.clear()


def ended_at(run: Run) -> float:
    """Return when a job ended, as far as its files say, in s since 1970: else when it was submitted or made."""
    record = run.ended()
    if record and record.ended:
        return record.ended
    return run.submission.submitted or (run.directory / "job.json").stat().st_mtime


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


def remove(run: Run, *, keep_results: bool) -> str | None:
    """Remove a run directory, or all but its results; links in it go, and what they lead to stays.

    Results go last: what is interrupted can be begun again. With its last task a sweep's own directory goes, too.

    Args:
        run: The run; see `refusal`.
        keep_results: Whether `RESULTS` stay.

    Returns:
        What is left of the sweep's directory, in words, and why; None where nothing is.

    Raises:
        OSError: Something cannot be removed; the run stays on the list.
    """
    with _opened(run) as folder:
        removal.clear_folder(folder, _any, [name for name in os.listdir(folder) if name not in RESULTS])  # noqa: PTH208
        if keep_results:
            return None
        removal.clear_folder(folder, _any)
    sweep = run.sweep
    run.directory.resolve().rmdir()
    return _remove_sweep(sweep) if sweep else None


@contextmanager
def _opened(run: Run) -> Iterator[int]:
    """Open a run directory, so that all is removed below it, whatever is put in its place meanwhile.

    Raises:
        OSError: It cannot be opened, or has not the record that `refusal` has looked at.
    """
    directory = run.directory.resolve()
    parent = removal.open_folder(str(directory.parent))
    try:
        with removal.open_subfolder(parent, directory.name) as folder:
            found = os.stat("job.json", dir_fd=folder, follow_symlinks=False)
            own = stat.S_ISREG(found.st_mode) and found.st_uid in {0, os.geteuid()}
            if not own or Run(Path(f"/proc/self/fd/{folder}")).spec != run.spec:
                raise OSError(errno.ESTALE, "another folder has taken its place", str(directory))
            yield folder
    finally:
        os.close(parent)


def _any(_name: str, _status: os.stat_result) -> bool:
    return False


def _remove_sweep(sweep: Run) -> str | None:
    """Remove of a sweep's directory what is hpcrun's, if none of the tasks is there that its record lists."""
    if not sweep.spec.said:
        return f"{sweep.directory} is left: its job.json, which lists its tasks, cannot be read"
    if any(task.directory.exists() for task in sweep.tasks):
        return None
    if why := refusal(sweep):
        return f"{sweep.directory} is left: {why}"
    with _opened(sweep) as folder:
        removal.clear_folder(folder, _any, [name for name in os.listdir(folder) if name in OF_SWEEP])  # noqa: PTH208
    try:
        sweep.directory.rmdir()
    except OSError:
        names = ", ".join(sorted(entry.name for entry in _children(sweep.directory)))
        return f"{sweep.directory} is left: hpcrun did not write what else it has: {names}"
    return None


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
