"""Removing what was found, and nothing that has been put in its place since.

Nodes run this file too, with any Python from 3.8: it imports the standard library alone.
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
"""What holds such a file is, or holds, a run directory or a copy of one: somebody keeps it."""


@dataclass(frozen=True)
class Leftover:
    """A file, socket or folder.

    Attributes:
        path: Where it is, without links on the way.
        identity: Device and inode: what is there later may be another.
        doubt: Why it may not be the job's; empty where it is beyond doubt.
        last: Until when the job may have written to it, in seconds since 1970.
    """

    path: str
    identity: tuple[int, int]
    doubt: str = ""
    last: float = inf


def mixed(path: str, status: os.stat_result, last: float) -> str:
    """Return why something must not be removed as a whole; empty where it may be.

    Args:
        path: A file or folder.
        status: What it is.
        last: Until when the job may have written to it, in seconds since 1970.
    """
    if not stat.S_ISDIR(status.st_mode):
        return "it was changed after the job ended" if status.st_ctime > last else ""
    for folder, folders, names in os.walk(path):
        for name in folders + names:
            inner = os.path.join(folder, name)  # noqa: PTH118 - may be any bytes
            with suppress(FileNotFoundError):
                its = os.lstat(inner)
                if name == RECORD:
                    return f"{inner} is the record of a run"
                if its.st_uid != os.getuid():
                    return f"{inner} is another user's"
                if its.st_dev != status.st_dev:
                    return f"{inner} is another file system"
                if not stat.S_ISDIR(its.st_mode) and its.st_ctime > last:
                    return f"{inner} was changed after the job ended"
    return ""


def remove(leftover: Leftover) -> str:
    """Remove a file or folder that is still the one that was found.

    No link is followed, however often somebody swaps names meanwhile: all is opened below the folder before it.

    Returns:
        Why it is still there; empty where it is gone.
    """
    folder, _, name = leftover.path.rpartition("/")
    try:
        parent = open_folder(folder)
        try:
            return _remove(parent, name, leftover)
        finally:
            os.close(parent)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return error.strerror or str(error)


def _remove(parent: int, name: str, leftover: Leftover) -> str:
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if (status.st_dev, status.st_ino) != leftover.identity or status.st_uid != os.getuid():
        return "another file has taken its place"
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=parent)
        return ""
    if why := mixed(leftover.path, status, leftover.last):  # somebody may have moved something into it meanwhile
        return why
    with below(parent, name, status) as folder:
        clear(folder, _not_ours)
    os.rmdir(name, dir_fd=parent)
    return ""


def open_folder(folder: str) -> int:
    """Open a folder by its path, in which no name may be a link."""
    found = os.open("/", os.O_PATH | os.O_DIRECTORY)
    for name in filter(None, folder.split("/")):
        try:
            inner = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=found)
        finally:
            os.close(found)
        found = inner
    return found


def clear(folder: int, kept: Callable[[str, os.stat_result], bool], names: Iterable[str] | None = None) -> None:
    """Remove what is in a folder, on its own file system.

    Args:
        folder: A descriptor of it, open to read.
        kept: Returns whether something, by its name and what it is, must not be removed.
        names: Of what is in it; None for all.

    Raises:
        OSError: Something must not be removed, or cannot be.
    """
    device = os.fstat(folder).st_dev
    for name in os.listdir(folder) if names is None else names:
        its = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if its.st_dev != device or kept(name, its):
            raise OSError(errno.EPERM, f"{name} in it is not the job's")
        if stat.S_ISDIR(its.st_mode):
            with below(folder, name, its) as inner:
                clear(inner, kept)
            os.rmdir(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)


@contextmanager
def below(parent: int, name: str, found: os.stat_result | None = None) -> Iterator[int]:
    """Open a folder in another one to read.

    Args:
        parent: A descriptor of that one.
        name: The folder's name.
        found: What it was; None for anything.

    Raises:
        OSError: It cannot be opened, is a link, or another folder by now.
    """
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        status = os.fstat(folder)
        if found and (status.st_dev, status.st_ino) != (found.st_dev, found.st_ino):
            raise OSError(errno.ESTALE, "another file has taken its place")
        yield folder
    finally:
        os.close(folder)


def _not_ours(name: str, status: os.stat_result) -> bool:
    return name == RECORD or status.st_uid != os.getuid()
