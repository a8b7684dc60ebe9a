"""The index of this user's runs: a link to each run directory, whose name alone says when it was made and its job's id.

Looking for a job reads one folder, however many runs there are. A link is made and renamed in one step each, which is
safe beside other processes, also on NFS.
"""

from __future__ import annotations

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
_MADE = re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4,8}(?P<task>\.\d+)?$")


@dataclass(frozen=True)
class Entry:
    """One link of the index.

    Attributes:
        link: The link's name.
        made: When the run directory was made, in ns since 1970.
        job_id: The job's id; None where the link was made before there was one, and not renamed since.
        directory_name: The run directory's last component.
    """

    link: str
    made: int
    job_id: str | None
    directory_name: str

    @property
    def name(self) -> str:
        """The job's name as the directory has it: all but letters, digits and ``._-`` became ``-``."""
        return _MADE.sub("", self.directory_name)

    @property
    def sweep(self) -> str | None:
        """The name of the sweep's directory, which all its tasks share; None for a job that is no task of a sweep."""
        made = _MADE.search(self.directory_name)
        return self.directory_name[: made.start("task")] if made and made["task"] else None

    @property
    def directory(self) -> Path:
        """The run directory.

        Raises:
            FileNotFoundError: The link is gone.
        """
        try:
            return (paths.run_index_folder() / self.link).readlink()
        except FileNotFoundError:  # it got its job's id between our reading the folder and this
            for other in entries(self.directory_name):
                if (other.made, other.directory_name) == (self.made, self.directory_name) and other.link != self.link:
                    return (paths.run_index_folder() / other.link).readlink()
            raise


def is_made(directory_name: str) -> bool:
    """Return whether a directory is named as `hpcrun.jobs.runs.new_directory` names a run's."""
    return bool(_MADE.search(directory_name))


def entries(directory_name: str = "") -> list[Entry]:
    """Return all entries, the newest first, or those that may be a run directory's of some name."""
    try:
        with os.scandir(paths.run_index_folder()) as folder:
            links = sorted((link.name for link in folder if link.name.endswith(directory_name)), reverse=True)
    except FileNotFoundError:
        return []
    matches = ((link, _LINK.fullmatch(link)) for link in links)
    return [Entry(link, int(m["made"]), m["job_id"], m["directory"]) for link, m in matches if m]


def unidentified() -> list[Path]:
    """Return the run directories whose links have no job id, the newest first; most often there is none."""
    try:
        with os.scandir(paths.run_index_folder()) as folder:  # much faster than `entries`, and every command looks here
            links = [link.name for link in folder if link.name.partition("-")[0].isdigit()]
    except FileNotFoundError:
        return []
    found = []
    for link in sorted(links, reverse=True):
        with suppress(OSError):
            found.append((paths.run_index_folder() / link).readlink())
    return found


def add(directory: Path, made: int, job_id: str | None = None) -> None:
    """List a run directory.

    Args:
        directory: The run directory.
        made: When it was made, in ns since 1970.
        job_id: The job's id, where there is one.
    """
    (paths.run_index_folder() / _link(directory.name, made, job_id)).symlink_to(directory)


def identify(ids: Mapping[Path, str]) -> None:
    """Note the jobs' ids of listed run directories; where that fails, ``submitted.json`` still says them.

    Args:
        ids: The ids, by run directories.
    """
    folder = paths.run_index_folder()
    names = {directory.name: (directory, job_id) for directory, job_id in ids.items()}
    for entry in entries(next(iter(names)) if len(names) == 1 else ""):
        with suppress(OSError, KeyError):
            directory, job_id = names[entry.directory_name]
            if entry.directory == directory:
                (folder / entry.link).rename(folder / _link(entry.directory_name, entry.made, job_id))


def forget(entry: Entry) -> None:
    """Take a run off the list."""
    (paths.run_index_folder() / entry.link).unlink(missing_ok=True)


def _link(directory_name: str, made: int, job_id: str | None) -> str:
    return f"{made}{f'.{job_id}' * bool(job_id)}-{directory_name}"
