"""The index of this user's runs: one symbolic link per run directory, named by submission time and job ids.

To find a job, hpcrun lists this one folder only. Links are created and renamed atomically, which is
safe with concurrent processes, also on NFS.
"""

from __future__ import annotations

import errno
import os
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_LINK_NAME = re.compile(r"(?P<submitted_ns>\d+)(?P<job_ids>(?:\.[^.-]+)*)-(?P<directory>.+)", re.DOTALL)
_NAME_SUFFIX = re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4,8}(?P<task>\.(?P<number>\d+))?$")


@frozen
class Entry:
    """One link of the index.

    Attributes:
        link: The link's name.
        submitted_ns: The time of the last submission, in nanoseconds since 1970: the creation time of the run
            directory, or the time at which the run was resumed.
        job_ids: The job ids of the run's submissions, the newest last; empty if the job was not submitted, or if the
            link was not renamed after the submission.
        directory_name: The run directory's last component.
    """

    link: str
    submitted_ns: int
    job_ids: tuple[str, ...]
    directory_name: str

    @property
    def job_id(self) -> str | None:
        """The job id of the last submission; None if it is unknown."""
        return self.job_ids[-1] if self.job_ids else None

    @property
    def name(self) -> str:
        """The job's name as in the directory name, with ``-`` for characters other than letters, digits and ``._-``."""
        return _NAME_SUFFIX.sub("", self.directory_name)

    @property
    def sweep(self) -> str | None:
        """The name of the sweep's directory; None if the job is not a task of a sweep."""
        suffix = _NAME_SUFFIX.search(self.directory_name)
        return self.directory_name[: suffix.start("task")] if suffix and suffix["task"] else None

    @property
    def task_number(self) -> int | None:
        """The task's number in its sweep; None if the job is not a task of a sweep."""
        suffix = _NAME_SUFFIX.search(self.directory_name)
        return int(suffix["number"]) if suffix and suffix["task"] else None

    @property
    def directory(self) -> Path:
        """The run directory.

        Raises:
            FileNotFoundError: The link was removed, or is not a symbolic link.
        """
        try:
            return _read_link(self.link)
        except FileNotFoundError:  # another process renamed the link to add a job id
            for other_entry in list_entries(self.directory_name):
                if other_entry.directory_name == self.directory_name and other_entry.link != self.link:
                    return _read_link(other_entry.link)
            raise


def _read_link(name: str) -> Path:
    link = paths.run_index_folder() / name
    try:
        return link.readlink()
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise FileNotFoundError(
            errno.ENOENT, "not a link", str(link)
        ) from None  # the index was copied by a program that follows links


def is_run_directory_name(directory_name: str) -> bool:
    """Return whether a name has the form that `hpcrun.jobs.run_creation.new_run_directory` generates."""
    return bool(_NAME_SUFFIX.search(directory_name))


def list_entries(directory_name: str = "") -> list[Entry]:
    """Return the entries of the index, the newest first, with the tasks of each sweep together in order.

    Args:
        directory_name: Return only the entries whose link ends with this name.
    """
    try:
        with os.scandir(paths.run_index_folder()) as folder:
            links = sorted((link.name for link in folder if link.name.endswith(directory_name)), reverse=True)
    except FileNotFoundError:
        return []
    matches = ((link, _LINK_NAME.fullmatch(link)) for link in links)
    return _keep_sweeps_together(
        [
            Entry(link, int(match["submitted_ns"]), tuple(match["job_ids"].split(".")[1:]), match["directory"])
            for link, match in matches
            if match
        ]
    )


def _keep_sweeps_together(entries: list[Entry]) -> list[Entry]:
    """Move the tasks of a sweep to its newest task, which may have been resumed after newer runs were submitted."""
    resumed_sweeps = {entry.sweep for entry in entries if len(entry.job_ids) > 1} - {None}
    if not resumed_sweeps:
        return entries
    positions: dict[str, int] = {}

    def position(numbered_entry: tuple[int, Entry]) -> tuple[int, int]:
        index, entry = numbered_entry
        sweep = entry.sweep
        if sweep not in resumed_sweeps or sweep is None:
            return index, 0
        return positions.setdefault(sweep, index), entry.task_number or 0

    return [entry for _, entry in sorted(enumerate(entries), key=position)]


def list_directories_without_job_id() -> list[Path]:
    """Return the run directories whose links have no job id, the newest first."""
    try:
        with os.scandir(
            paths.run_index_folder()
        ) as folder:  # every command calls this function, and `list_entries` is much slower
            links = [link.name for link in folder if link.name.partition("-")[0].isdigit()]
    except FileNotFoundError:
        return []
    directories = []
    for link in sorted(links, reverse=True):
        with suppress(OSError):
            directories.append((paths.run_index_folder() / link).readlink())
    return directories


def add_entry(directory: Path, submitted_ns: int, job_ids: Iterable[str] = ()) -> None:
    """Add a run directory to the index.

    Args:
        directory: The run directory.
        submitted_ns: The time of the last submission, or of the creation of the run directory, in nanoseconds since
            1970.
        job_ids: The job ids of the run's submissions, the newest last, if known.
    """
    (paths.run_index_folder() / _link_name(directory.name, submitted_ns, job_ids)).symlink_to(directory)


def record_job_ids(ids: Mapping[Path, str]) -> None:
    """Add job ids to the links of run directories; a run that had a job id, and was resumed, becomes the newest run.

    A failure is harmless, because ``submitted.json`` has the ids too.

    Args:
        ids: The job ids, by run directory.
    """
    folder = paths.run_index_folder()
    names = {directory.name: (directory, job_id) for directory, job_id in ids.items()}
    for entry in list_entries(next(iter(names)) if len(names) == 1 else ""):
        with suppress(OSError, KeyError):
            directory, job_id = names[entry.directory_name]
            if job_id not in entry.job_ids and entry.directory == directory:
                submitted_ns = time.time_ns() if entry.job_ids else entry.submitted_ns
                link_name = _link_name(entry.directory_name, submitted_ns, [*entry.job_ids, job_id])
                (folder / entry.link).rename(folder / link_name)


def remove_entry(entry: Entry) -> None:
    """Remove a run from the index."""
    (paths.run_index_folder() / entry.link).unlink(missing_ok=True)


def _link_name(directory_name: str, submitted_ns: int, job_ids: Iterable[str]) -> str:
    return f"{'.'.join([str(submitted_ns), *job_ids])}-{directory_name}"
