"""Removal of files and folders that were found earlier, unless another file has replaced them.

Compute nodes may run this file with Python 3.8 or later and without packages, so it imports only the standard library.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

RECORD_FILE = "job.json"
"""Name of a file whose folder is a run directory, or a copy of one."""


@dataclass(frozen=True)
class Leftover:
    """A file, socket or folder that a job has not removed.

    Attributes:
        path: The path, without symbolic links.
        identity: The device and inode, because another file may have the same path later.
        doubt: The reason why the file may not belong to the job; empty if it certainly belongs to the job.
        last_write: The latest time at which the job may have written to it, in seconds since 1970.
    """

    path: str
    identity: tuple[int, int]
    doubt: str = ""
    last_write: float = inf


def reason_to_keep(path: str, path_stat: os.stat_result, last_write: float) -> str:
    """Return the reason why a file or folder must not be removed; empty if it may be removed.

    Args:
        path: The path of the file or folder.
        path_stat: The result of ``os.lstat`` for the path.
        last_write: The latest time at which the job may have written to it, in seconds since 1970.
    """
    if not stat.S_ISDIR(path_stat.st_mode):
        return "it was changed after the job ended" if path_stat.st_ctime > last_write else ""
    for folder, folders, names in os.walk(path):
        for name in folders + names:
            inner_path = os.path.join(folder, name)  # noqa: PTH118 - may be any bytes
            with suppress(FileNotFoundError):
                inner_stat = os.lstat(inner_path)
                if name == RECORD_FILE:
                    return f"{inner_path} is the record of a run"
                if inner_stat.st_uid != os.getuid():
                    return f"{inner_path} belongs to another user"
                if inner_stat.st_dev != path_stat.st_dev:
                    return f"{inner_path} is on another file system"
                if inner_stat.st_ctime > last_write:  # moving a folder changes only its ctime
                    return f"{inner_path} was changed after the job ended"
    return ""


def remove_leftover(leftover: Leftover) -> str:
    """Remove a file or folder, unless another file has replaced it.

    No symbolic link is followed, even if paths change during the removal, because each folder is opened relative to its
    parent.

    Returns:
        The reason why the file was not removed; empty if it was removed.
    """
    folder, _, name = leftover.path.rpartition("/")
    try:
        parent = open_folder(folder)
        try:
            return _remove_entry(parent, name, leftover)
        finally:
            os.close(parent)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return error.strerror or str(error)


def _remove_entry(parent: int, name: str, leftover: Leftover) -> str:
    file_stat = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if (file_stat.st_dev, file_stat.st_ino) != leftover.identity or file_stat.st_uid != os.getuid():
        return "another file has replaced it"
    if not stat.S_ISDIR(file_stat.st_mode):
        os.unlink(name, dir_fd=parent)
        return ""
    # another file may have been moved into the folder in the meantime
    if reason := reason_to_keep(leftover.path, file_stat, leftover.last_write):
        return reason
    with open_subfolder(parent, name, file_stat) as folder:
        clear_folder(folder, _must_keep)
    os.rmdir(name, dir_fd=parent)
    return ""


def open_folder(folder: str) -> int:
    """Open a folder by a path without symbolic links, and return its descriptor."""
    descriptor = os.open("/", os.O_PATH | os.O_DIRECTORY)
    for name in filter(None, folder.split("/")):
        try:
            subfolder = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = subfolder
    return descriptor


def clear_folder(
    folder: int, must_keep: Callable[[str, os.stat_result], bool], names: Iterable[str] | None = None
) -> None:
    """Remove the entries of a folder, except entries on other file systems.

    Args:
        folder: The folder's descriptor, open for reading.
        must_keep: Function that returns whether an entry, given its name and stat result, must not be removed.
        names: The names of the entries to remove; None for all.

    Raises:
        OSError: An entry must not or cannot be removed.
    """
    device = os.fstat(folder).st_dev
    for name in os.listdir(folder) if names is None else names:
        entry_stat = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if entry_stat.st_dev != device or must_keep(name, entry_stat):
            raise OSError(errno.EPERM, f"{name} in it is not the job's")
        if stat.S_ISDIR(entry_stat.st_mode):
            with open_subfolder(folder, name, entry_stat) as inner:
                clear_folder(inner, must_keep)
            os.rmdir(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)


@contextmanager
def open_subfolder(parent: int, name: str, expected_stat: os.stat_result | None = None) -> Iterator[int]:
    """Open a folder for reading, by its name in a parent folder.

    Args:
        parent: The parent folder's descriptor.
        name: The folder's name.
        expected_stat: The stat result of the folder that was found earlier; None for any folder.

    Raises:
        OSError: The folder cannot be opened, is a symbolic link, or has been replaced.
    """
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        folder_stat = os.fstat(folder)
        if expected_stat and (folder_stat.st_dev, folder_stat.st_ino) != (expected_stat.st_dev, expected_stat.st_ino):
            raise OSError(errno.ESTALE, "another file has replaced it")
        yield folder
    finally:
        os.close(folder)


def _must_keep(name: str, entry_stat: os.stat_result) -> bool:
    return name == RECORD_FILE or entry_stat.st_uid != os.getuid()
