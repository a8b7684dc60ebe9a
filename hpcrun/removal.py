"""Removal of files and folders that were found earlier, but not of others that have replaced them since.

Compute nodes also run this file, with any Python from 3.8: it imports only the standard library.
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

RECORD = "job.json"
"""A folder that contains this file is a run directory, or a copy that somebody keeps."""


@dataclass(frozen=True)
class Leftover:
    """A file, socket or folder that a job left.

    Attributes:
        path: Its path, without symbolic links.
        identity: Its device and inode: another file may have the path later.
        doubt: Why it may not belong to the job; empty if it certainly does.
        last_write: The latest time at which the job may have written to it, in seconds since 1970.
    """

    path: str
    identity: tuple[int, int]
    doubt: str = ""
    last_write: float = inf


def reason_to_keep(path: str, status: os.stat_result, last_write: float) -> str:
    """Return why a file or folder must not be removed as a whole; empty if it may be.

    Args:
        path: A file or folder.
        status: Its status.
        last_write: The latest time at which the job may have written to it, in seconds since 1970.
    """
    if not stat.S_ISDIR(status.st_mode):
        return "it was changed after the job ended" if status.st_ctime > last_write else ""
    for folder, folders, names in os.walk(path):
        for name in folders + names:
            inner = os.path.join(folder, name)  # noqa: PTH118 - may be any bytes
            with suppress(FileNotFoundError):
                inner_status = os.lstat(inner)
                if name == RECORD:
                    return f"{inner} is the record of a run"
                if inner_status.st_uid != os.getuid():
                    return f"{inner} belongs to another user"
                if inner_status.st_dev != status.st_dev:
                    return f"{inner} is on another file system"
                if inner_status.st_ctime > last_write:  # of a folder, too: moving one changes no other time
                    return f"{inner} was changed after the job ended"
    return ""


def remove_leftover(leftover: Leftover) -> str:
    """Remove a file or folder if it is still the one that was found.

    No symbolic link is followed, even if names are swapped meanwhile: each folder is opened relative to its parent.

    Returns:
        Why it was not removed; empty if it was.
    """
    folder, _, name = leftover.path.rpartition("/")
    try:
        parent = open_folder(folder)
        try:
            return _remove_from(parent, name, leftover)
        finally:
            os.close(parent)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return error.strerror or str(error)


def _remove_from(parent: int, name: str, leftover: Leftover) -> str:
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if (status.st_dev, status.st_ino) != leftover.identity or status.st_uid != os.getuid():
        return "another file has replaced it"
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=parent)
        return ""
    # something may have been moved into it meanwhile
    if why := reason_to_keep(leftover.path, status, leftover.last_write):
        return why
    with open_subfolder(parent, name, status) as folder:
        clear_folder(folder, _must_keep)
    os.rmdir(name, dir_fd=parent)
    return ""


def open_folder(folder: str) -> int:
    """Open a folder by a path without symbolic links, and return its descriptor."""
    descriptor = os.open("/", os.O_PATH | os.O_DIRECTORY)
    for name in filter(None, folder.split("/")):
        try:
            inner = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor


def clear_folder(
    folder: int, must_keep: Callable[[str, os.stat_result], bool], names: Iterable[str] | None = None
) -> None:
    """Remove what a folder contains, on its own file system.

    Args:
        folder: The folder's descriptor, open for reading.
        must_keep: Returns whether an entry, given its name and status, must not be removed.
        names: The entries to remove; None for all.

    Raises:
        OSError: An entry must not be removed, or cannot be.
    """
    device = os.fstat(folder).st_dev
    for name in os.listdir(folder) if names is None else names:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if status.st_dev != device or must_keep(name, status):
            raise OSError(errno.EPERM, f"{name} in it is not the job's")
        if stat.S_ISDIR(status.st_mode):
            with open_subfolder(folder, name, status) as inner:
                clear_folder(inner, must_keep)
            os.rmdir(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)


@contextmanager
def open_subfolder(parent: int, name: str, expected: os.stat_result | None = None) -> Iterator[int]:
    """Open a folder for reading, by its name in a parent folder.

    Args:
        parent: The parent folder's descriptor.
        name: The folder's name.
        expected: The status of the folder that was found earlier; None for any.

    Raises:
        OSError: It cannot be opened, is a symbolic link, or has been replaced.
    """
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        status = os.fstat(folder)
        if expected and (status.st_dev, status.st_ino) != (expected.st_dev, expected.st_ino):
            raise OSError(errno.ESTALE, "another file has replaced it")
        yield folder
    finally:
        os.close(folder)


def _must_keep(name: str, status: os.stat_result) -> bool:
    return name == RECORD or status.st_uid != os.getuid()
