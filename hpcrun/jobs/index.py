"""The index of this user's runs: one symbolic link per run directory, named by creation time and job id.

A search for a job reads one folder, however many runs there are. Links are created and renamed atomically, which is
safe with concurrent processes, also on NFS.
"""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcrun import paths

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_LINK = re.compile(r"(?P<made>\d+)(?:\.(?P<job_id>[^.-]+))?-(?P<directory>.+)", re.DOTALL)
_TIMESTAMP = re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4,8}(?P<task>\.\d+)?$")


@dataclass(frozen=True)
class Entry:
    """One link of the index.

    Attributes:
        link: The link's name.
        made: When the run directory was created, in ns since 1970.
        job_id: The job's id; None if the link was created before submission and not renamed since.
        directory_name: The run directory's last component.
    """

    link: str
    made: int
    job_id: str | None
    directory_name: str

    @property
    def name(self) -> str:
        """The job's name as in the directory name: other characters than letters, digits and ``._-`` became ``-``."""
        return _TIMESTAMP.sub("", self.directory_name)

    @property
    def sweep(self) -> str | None:
        """The name of the sweep's directory; None if the job is not a task of a sweep."""
        made = _TIMESTAMP.search(self.directory_name)
        return self.directory_name[: made.start("task")] if made and made["task"] else None

    @property
    def directory(self) -> Path:
        """The run directory.

        Raises:
            FileNotFoundError: The link is gone, or it is a file or folder.
        """
        try:
            return _read_link(self.link)
        except FileNotFoundError:  # another process renamed the link to add the job id
            for other in list_entries(self.directory_name):
                if (other.made, other.directory_name) == (self.made, self.directory_name) and other.link != self.link:
                    return _read_link(other.link)
            raise


def _read_link(name: str) -> Path:
    link = paths.run_index_folder() / name
    try:
        return link.readlink()
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise FileNotFoundError(errno.ENOENT, "not a link", str(link)) from None  # a copy that followed the links


def is_run_directory_name(directory_name: str) -> bool:
    """Return whether a name has the form that `hpcrun.jobs.run_creation.new_run_directory` generates."""
    return bool(_TIMESTAMP.search(directory_name))


def list_entries(directory_name: str = "") -> list[Entry]:
    """Return the entries, the newest first; with a name, only those whose link ends with it."""
    try:
        with os.scandir(paths.run_index_folder()) as folder:
            links = sorted((link.name for link in folder if link.name.endswith(directory_name)), reverse=True)
    except FileNotFoundError:
        return []
    matches = ((link, _LINK.fullmatch(link)) for link in links)
    return [Entry(link, int(m["made"]), m["job_id"], m["directory"]) for link, m in matches if m]


def list_without_job_id() -> list[Path]:
    """Return the run directories whose links have no job id, the newest first."""
    try:
        with os.scandir(
            paths.run_index_folder()
        ) as folder:  # much faster than `list_entries`; every command calls this
            links = [link.name for link in folder if link.name.partition("-")[0].isdigit()]
    except FileNotFoundError:
        return []
    found = []
    for link in sorted(links, reverse=True):
        with suppress(OSError):
            found.append((paths.run_index_folder() / link).readlink())
    return found


def add_entry(directory: Path, made: int, job_id: str | None = None) -> None:
    """Add a run directory to the index.

    Args:
        directory: The run directory.
        made: When it was created, in ns since 1970.
        job_id: The job's id, if it has one.
    """
    (paths.run_index_folder() / _link_name(directory.name, made, job_id)).symlink_to(directory)


def record_job_ids(ids: Mapping[Path, str]) -> None:
    """Add job ids to the links of run directories; a failure is harmless, because ``submitted.json`` has the ids too.

    Args:
        ids: The ids, by run directory.
    """
    folder = paths.run_index_folder()
    names = {directory.name: (directory, job_id) for directory, job_id in ids.items()}
    for entry in list_entries(next(iter(names)) if len(names) == 1 else ""):
        with suppress(OSError, KeyError):
            directory, job_id = names[entry.directory_name]
            if entry.directory == directory:
                (folder / entry.link).rename(folder / _link_name(entry.directory_name, entry.made, job_id))


def remove_entry(entry: Entry) -> None:
    """Remove a run from the index."""
    (paths.run_index_folder() / entry.link).unlink(missing_ok=True)


def _link_name(directory_name: str, made: int, job_id: str | None) -> str:
    return f"{made}{f'.{job_id}' * bool(job_id)}-{directory_name}"
