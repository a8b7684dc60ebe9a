"""Who may look at what hpcrun writes: whoever may read the folder in which it lies. Nobody but its owner may write it.

A run directory is its owner's alone, unless the site key ``share_runs`` says otherwise. Its mode tells that to
whatever writes there, on any node: to hpcrun, to the job's script and to `hpcrun.train`.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

_READ, _ENTER, WRITE = 0o044, 0o055, 0o022


def opener(name: str, flags: int) -> int:
    """Open a file as the function `open` does, and make it, where it is not there, as its folder lets it be read.

    Args:
        name: The file.
        flags: Those of `os.open`.
    """
    allowed = Path(name).parent.stat().st_mode & _READ
    return os.open(name, flags, 0o600 | allowed)


def make(folder: Path) -> None:
    """Make a folder, and those above it that are not there, as the folder above lets it be read."""
    if not folder.is_dir():
        if not folder.parent.is_dir():
            make(folder.parent)
        with suppress(FileExistsError):  # another process makes it
            folder.mkdir(mode=0o700 | folder.parent.stat().st_mode & _ENTER)


def make_run(folder: Path, *, shared: bool) -> str | None:
    """Make a run directory.

    Args:
        folder: The run directory; folders above it that are not there are made so that others cannot write them.
        shared: Whether others may read it, as far as the umask lets them.

    Returns:
        Who else may write it all the same, or may read what is not shared, in words; None where nobody may.

    Raises:
        OSError: It cannot be made.
    """
    mode = 0o755 if shared else 0o700
    for above in reversed(folder.parents):
        with suppress(FileExistsError):
            if not above.is_dir():
                above.mkdir(mode=0o755)
    folder.mkdir(mode=mode)
    with suppress(OSError):  # there is none; it would let others write what is made in the folder, whatever the umask
        os.removexattr(folder, "system.posix_acl_default")
    found = stat.S_IMODE(folder.stat().st_mode)
    if found & 0o777 & ~mode:
        with suppress(OSError):
            folder.chmod(found & ~0o777 | mode)
        found = stat.S_IMODE(folder.stat().st_mode)
    if beyond := found & 0o777 & ~mode:
        return f"its mode stays {found & 0o777:04o}: others can {'write' if beyond & WRITE else 'read'} there"
    return None
