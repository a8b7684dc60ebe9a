"""Permissions of files that hpcrun writes: only the owner can write a file, and a file is as readable as its folder.

Only the owner can read a run directory, unless the site sets ``share_runs``. Programs that write to the run directory,
such as the job script and `hpcrun.train`, take the read permissions from the directory's mode.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

_READ, _READ_AND_ENTER, WRITE = 0o044, 0o055, 0o022
"""Permission bits of group and others."""


def opener(name: str, flags: int) -> int:
    """Open a file, as an ``opener`` for `open`: a new file gets the read permissions of its folder.

    Args:
        name: The file.
        flags: The flags of `os.open`.
    """
    read_bits = Path(name).parent.stat().st_mode & _READ
    return os.open(name, flags, 0o600 | read_bits)


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, each with the read permissions of its parent."""
    if not folder.is_dir():
        if not folder.parent.is_dir():
            make_folder(folder.parent)
        with suppress(FileExistsError):  # another process has created it in the meantime
            folder.mkdir(mode=0o700 | folder.parent.stat().st_mode & _READ_AND_ENTER)


def make_own_folder(folder: Path, *, is_private: bool = False) -> None:
    """Create a folder and its missing parents, writable only by this user, regardless of the umask.

    Args:
        folder: The folder.
        is_private: Whether only the owner can read the folder; this does not apply to its parents.
    """
    for one in (*reversed(folder.parents), folder):
        with suppress(FileExistsError):
            if not one.is_dir():
                one.mkdir(mode=0o700 if is_private and one == folder else 0o755)


def make_run_directory(folder: Path, *, is_shared: bool) -> str | None:
    """Create a run directory.

    Args:
        folder: The path of the run directory. Missing parents are created without write permission for others.
        is_shared: Whether other users may read the run directory, if the umask permits it.

    Returns:
        A sentence about an unwanted permission that chmod does not remove; None if there is none.

    Raises:
        OSError: The directory cannot be created.
    """
    mode = 0o755 if is_shared else 0o700
    make_own_folder(folder.parent)
    folder.mkdir(mode=mode)
    with suppress(OSError):  # a default ACL overrides the umask; most folders have no default ACL
        os.removexattr(folder, "system.posix_acl_default")
    actual_mode = stat.S_IMODE(folder.stat().st_mode)
    if actual_mode & 0o777 & ~mode:
        with suppress(OSError):
            folder.chmod(actual_mode & ~0o777 | mode)
        actual_mode = stat.S_IMODE(folder.stat().st_mode)
    if unwanted := actual_mode & 0o777 & ~mode:
        return f"its mode stays {actual_mode & 0o777:04o}: others can {'write' if unwanted & WRITE else 'read'} there"
    return None
