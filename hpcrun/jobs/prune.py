"""Removal of the run directories of jobs that have ended."""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import removal, secrets, write_access
from hpcrun.jobs import record_trust, run_index, state_cache
from hpcrun.jobs.runs import Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

RESULT_FILES = frozenset({
    "job.json", "job.sh", "submitted.json", "refused.json", "starts.jsonl", "exit.json", "cleaned.json",
    "result.json", "metrics.jsonl", "provenance", secrets.SECRETS_FILE,
})  # fmt: skip
"""The files that ``--keep-results`` keeps: hpcrun needs them to show, compare and resubmit a run."""

SWEEP_FILES = RESULT_FILES | {"code", "cuda", "logs", "shell"}
"""The files that hpcrun writes into the directory of a sweep, besides the directories of its tasks."""

_TEMPORARY_FILE = re.compile(r"\.place-\d+|\.submission_file_\w+\.sh")
"""Lock files that limit how many tasks of a local sweep run at once, see ``hpcrun_await_turn`` in local.bash; the file
that submitit leaves if it is killed during a submission."""


def find_obstacle(run: Run) -> str | None:
    """Return the reason to keep a run directory, regardless of its job's state; None if it may be removed.

    hpcrun removes only directories that it created: the record must be readable, owned by this user, and name this
    directory.

    Args:
        run: The run.
    """
    directory = run.directory
    if mismatch := _find_record_mismatch(run):
        return mismatch
    for description, folder in (
        ("the current directory", Path.cwd()),
        ("your home directory", Path(os.environ.get("HOME", "/"))),
    ):
        if folder.resolve().is_relative_to(directory.resolve()):
            return f"it contains {description}"
    task_directories = {task.directory for task in run.tasks}
    nested_run = next((path for path in _find_runs(directory) if path not in task_directories), None)
    return f"it contains another run: {nested_run}" if nested_run else None


def _find_record_mismatch(run: Run) -> str | None:
    """Return the reason to doubt that hpcrun created a run's directory for this user; None if its records prove it."""
    directory, recorded_path = run.directory, Path(run.spec.run_dir)
    if not run.spec.is_recorded:
        return "its job.json cannot be read, which lists the files of hpcrun"
    if not run_index.is_run_directory_name(directory.name) or recorded_path.name != directory.name:
        return f"it is not a run directory: its job.json belongs to {recorded_path}"
    if recorded_path.exists() and not recorded_path.samefile(directory):
        return f"it is a copy of {recorded_path}"
    for name in record_trust.TRUSTED_FILES:  # some of these files show whether the job has ended
        with suppress(FileNotFoundError):
            if writer := write_access.find_other_writer(directory / name, file_only=True):
                return f"another user may have written its {name}: {writer}"
    _ = run.submission, run.exit_record()  # reading them records their errors in run.faults
    for name in record_trust.TRUSTED_FILES:
        if name in run.faults:
            return f"its {name} cannot be read, so its job may still run: {run.faults[name]}"
    return None


def _find_runs(directory: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(directory):
        is_candidate = "job.json" in files and folder != str(directory)
        if is_candidate and run_index.is_run_directory_name(Path(folder).name):
            yield Path(folder)
            folders.clear()


def end_time(run: Run) -> float:
    """Return a job's end time in s since 1970 from its files; else the time of its submission or creation."""
    record = run.end_record()
    if record and record.ended:
        return record.ended
    return run.submission.submitted or (run.directory / "job.json").stat().st_mtime


def disk_usage(run: Run, *, keep_results: bool) -> int:
    """Return the disk space in bytes that the removal of a run directory frees.

    Args:
        run: The run.
        keep_results: Whether to keep `RESULT_FILES`.
    """
    total = 0
    for entry in _list_children(run.directory):
        if keep_results and entry.name in RESULT_FILES:
            continue
        total += _allocated_bytes(entry)
        if entry.is_dir(follow_symlinks=False):
            for folder, folders, files in os.walk(entry.path):
                for name in (*folders, *files):
                    with suppress(OSError):
                        total += os.lstat(os.path.join(folder, name)).st_blocks * 512  # noqa: PTH118 - many files
    return total


def remove_run(run: Run, *, keep_results: bool) -> str | None:
    """Remove a run directory, or all of its files except the results; links are removed, their targets are kept.

    Results are removed last, so that an interrupted removal can be repeated. With its last task, the sweep's directory
    is removed, too.

    Args:
        run: The run; see `find_obstacle`.
        keep_results: Whether to keep `RESULT_FILES`.

    Returns:
        A message if the sweep's directory remains because it contains other files; None otherwise.

    Raises:
        OSError: A file cannot be removed; the run stays in the index.
    """
    with _open_run_directory(run) as folder:
        removal.clear_folder(folder, _keep_none, [name for name in os.listdir(folder) if name not in RESULT_FILES])  # noqa: PTH208
        if keep_results:
            return None
        removal.clear_folder(folder, _keep_none)
    sweep = run.sweep
    run.directory.resolve().rmdir()
    return _remove_sweep(sweep) if sweep else None


@contextmanager
def _open_run_directory(run: Run) -> Iterator[int]:
    """Open a run directory for removal, safe against concurrent replacement of its path.

    Raises:
        OSError: The directory cannot be opened, or does not have the record that `find_obstacle` checked.
    """
    directory = run.directory.resolve()
    parent = removal.open_folder(str(directory.parent))
    try:
        with removal.open_subfolder(parent, directory.name) as folder:
            record_stat = os.stat("job.json", dir_fd=folder, follow_symlinks=False)
            is_trusted = stat.S_ISREG(record_stat.st_mode) and record_stat.st_uid in {0, os.geteuid()}
            if not is_trusted or Run(Path(f"/proc/self/fd/{folder}")).spec != run.spec:
                raise OSError(errno.ESTALE, "it was replaced by another folder", str(directory))
            yield folder
    finally:
        os.close(parent)


def _keep_none(_name: str, _status: os.stat_result) -> bool:
    return False


def _remove_sweep(sweep: Run) -> str | None:
    """Remove hpcrun's files from a sweep's directory if all of its tasks' directories are gone."""
    if not sweep.spec.is_recorded:
        return f"{sweep.directory} is left: its job.json, which lists its tasks, cannot be read"
    if any(task.directory.exists() for task in sweep.tasks):
        return None
    if obstacle := find_obstacle(sweep):
        return f"{sweep.directory} is left: {obstacle}"
    with _open_run_directory(sweep) as folder:
        removable_names = SWEEP_FILES | {f"{sweep.job_id}_submission.sh"}
        present_names = os.listdir(folder)  # noqa: PTH208
        names_to_remove = [name for name in present_names if name in removable_names or _TEMPORARY_FILE.fullmatch(name)]
        removal.clear_folder(folder, _keep_none, names_to_remove)
    try:
        sweep.directory.rmdir()
    except OSError:
        names = ", ".join(sorted(entry.name for entry in _list_children(sweep.directory)))
        return f"{sweep.directory} is left: it contains files that hpcrun did not write: {names}"
    return None


def remove_from_index(directories: Iterable[Path]) -> None:
    """Remove runs from the index and from the state cache.

    Args:
        directories: The removed run directories.
    """
    names = {directory.name: directory for directory in directories}
    for entry in run_index.list_entries():
        with suppress(FileNotFoundError):
            if names.get(entry.directory_name) == entry.directory:
                run_index.remove_entry(entry)
    state_cache.forget(names)


def _list_children(directory: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(directory) as entries:
        yield from list(entries)


def _allocated_bytes(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * 512
    except OSError:
        return 0
