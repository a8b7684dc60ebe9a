"""Permissions of the files that hpcrun writes: only the owner writes them, and the folder decides who reads them.

A run directory can be read by its owner only, unless the site sets ``share_runs``. Its mode carries this
decision to everything that writes there, on any node: hpcrun, the job script and `hpcrun.train`.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

_READ, _READ_AND_ENTER, WRITE = 0o044, 0o055, 0o022
"""Permission bits of group and others."""


def opener(name: str, flags: int) -> int:
    """Open a file, and create a new one with the read permissions of its folder (the ``opener`` of `open`).

    Args:
        name: The file.
        flags: The flags of `os.open`.
    """
    allowed = Path(name).parent.stat().st_mode & _READ
    return os.open(name, flags, 0o600 | allowed)


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, each with the read permissions of its parent."""
    if not folder.is_dir():
        if not folder.parent.is_dir():
            make_folder(folder.parent)
        with suppress(FileExistsError):  # another process creates it
            folder.mkdir(mode=0o700 | folder.parent.stat().st_mode & _READ_AND_ENTER)


def make_own_folder(folder: Path, *, private: bool = False) -> None:
    """Create a folder and its missing parents, which nobody else can write, whatever the umask.

    Args:
        folder: The folder.
        private: Whether only its owner can read it; the umask decides on its parents.
    """
    for one in (*reversed(folder.parents), folder):
        with suppress(FileExistsError):
            if not one.is_dir():
                one.mkdir(mode=0o700 if private and one == folder else 0o755)


def make_run_directory(folder: Path, *, shared: bool) -> str | None:
    """Create a run directory.

    Args:
        folder: The run directory. Missing parents are created without write permission for others.
        shared: Whether others may read it, as far as the umask permits.

    Returns:
        Which unwanted permission others have and chmod does not remove, as a sentence; None where there is none.

    Raises:
        OSError: It cannot be created.
    """
    mode = 0o755 if shared else 0o700
    make_own_folder(folder.parent)
    folder.mkdir(mode=mode)
    with suppress(OSError):  # a default ACL overrides the umask; most folders have none
        os.removexattr(folder, "system.posix_acl_default")
    actual = stat.S_IMODE(folder.stat().st_mode)
    if actual & 0o777 & ~mode:
        with suppress(OSError):
            folder.chmod(actual & ~0o777 | mode)
        actual = stat.S_IMODE(folder.stat().st_mode)
    if unwanted := actual & 0o777 & ~mode:
        return f"its mode stays {actual & 0o777:04o}: others can {'write' if unwanted & WRITE else 'read'} there"
    return None
