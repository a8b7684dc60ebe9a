"""The index of this user's runs: one symbolic link per run directory, named by creation time and job id.

To find a job, hpcrun lists this one folder only. Links are created and renamed atomically, which is
safe with concurrent processes, also on NFS.
"""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_LINK_NAME = re.compile(r"(?P<created_ns>\d+)(?:\.(?P<job_id>[^.-]+))?-(?P<directory>.+)", re.DOTALL)
_NAME_SUFFIX = re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4,8}(?P<task>\.\d+)?$")


@frozen
class Entry:
    """One link of the index.

    Attributes:
        link: The link's name.
        created_ns: The creation time of the run directory, in nanoseconds since 1970.
        job_id: The job's id; None if the job was not submitted, or if the link was not renamed after the submission.
        directory_name: The run directory's last component.
    """

    link: str
    created_ns: int
    job_id: str | None
    directory_name: str

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
    def directory(self) -> Path:
        """The run directory.

        Raises:
            FileNotFoundError: The link was removed, or is not a symbolic link.
        """
        try:
            return _read_link(self.link)
        except FileNotFoundError:  # another process renamed the link to add the job id
            for other_entry in list_entries(self.directory_name):
                if (other_entry.created_ns, other_entry.directory_name) == (
                    self.created_ns,
                    self.directory_name,
                ) and other_entry.link != self.link:
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
    """Return the entries of the index, the newest first; with a name, only entries whose link ends with the name."""
    try:
        with os.scandir(paths.run_index_folder()) as folder:
            links = sorted((link.name for link in folder if link.name.endswith(directory_name)), reverse=True)
    except FileNotFoundError:
        return []
    matches = ((link, _LINK_NAME.fullmatch(link)) for link in links)
    return [
        Entry(link, int(match["created_ns"]), match["job_id"], match["directory"]) for link, match in matches if match
    ]


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


def add_entry(directory: Path, created_ns: int, job_id: str | None = None) -> None:
    """Add a run directory to the index.

    Args:
        directory: The run directory.
        created_ns: The creation time of the run directory, in nanoseconds since 1970.
        job_id: The job's id, if known.
    """
    (paths.run_index_folder() / _link_name(directory.name, created_ns, job_id)).symlink_to(directory)


def record_job_ids(ids: Mapping[Path, str]) -> None:
    """Add job ids to the links of run directories; a failure is harmless, because ``submitted.json`` has the ids too.

    Args:
        ids: The job ids, by run directory.
    """
    folder = paths.run_index_folder()
    names = {directory.name: (directory, job_id) for directory, job_id in ids.items()}
    for entry in list_entries(next(iter(names)) if len(names) == 1 else ""):
        with suppress(OSError, KeyError):
            directory, job_id = names[entry.directory_name]
            if entry.directory == directory:
                (folder / entry.link).rename(folder / _link_name(entry.directory_name, entry.created_ns, job_id))


def remove_entry(entry: Entry) -> None:
    """Remove a run from the index."""
    (paths.run_index_folder() / entry.link).unlink(missing_ok=True)


def _link_name(directory_name: str, created_ns: int, job_id: str | None) -> str:
    return f"{created_ns}{f'.{job_id}' * bool(job_id)}-{directory_name}"
