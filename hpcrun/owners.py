"""Who may write a file, or change on the way to it what is found there.

What is read: owners, mode bits, and POSIX ACLs (acl(5)). An NFSv4 ACL counts as far as the mode bits show it.
"""

from __future__ import annotations

import functools
import grp
import os
import pwd
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_LINKS = 40
"""So many links the kernel follows (path_resolution(7))."""

_USER, _GROUP_OWNER, _GROUP, _MASK = 0x02, 0x04, 0x08, 0x10  # acl(5): tags of entries
_WRITE = 2


def writer(
    file: Path, trusted: frozenset[int] = frozenset(), read: os.stat_result | None = None, *, itself: bool = False
) -> str | None:
    """Tell who, other than root, this user and others who are trusted, may change what a file or folder has.

    Args:
        file: The file or folder.
        trusted: The user ids of the others.
        read: What the file was when it was read; None for what it is.
        itself: Whether only the file counts, and not who may put another in its place.

    Returns:
        One who may, in words, such as ``bob owns /shared/lab``; None where nobody may.

    Raises:
        OSError: It is not there, or not to be seen.
    """
    safe = {0, os.geteuid(), *trusted}
    # whoever owns / decides on all below it; in a user namespace root's folders appear as nobody's
    above = safe | {Path("/").stat().st_uid}
    closed = None
    for path, found in _way(file):
        folder, link = stat.S_ISDIR(found.st_mode), stat.S_ISLNK(found.st_mode)
        status = found if folder or link else read or found
        counts = not itself or not (folder or link)
        if counts and status.st_uid not in (above if folder or link else safe):
            return f"{user(status.st_uid)} owns {path}"
        # in a sticky folder each name is its owner's, and the owner of the next name is looked at, too
        sticky = folder and status.st_mode & stat.S_ISVTX
        inside = closed and path.is_relative_to(closed)
        if counts and not (link or sticky or inside) and (who := _others(path, status, safe)):
            return f"{who} may write {path}"
        if folder and not inside:  # into a folder that only its owner may enter, nobody else gets
            open_to_others = status.st_mode & (stat.S_IXGRP | stat.S_IXOTH) or status.st_uid not in safe
            closed = None if open_to_others else path
    return None


def user(uid: int) -> str:
    """Return a user's name, or number where nobody has it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _way(file: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield every folder and link from / on by which a file is found, and the file."""
    todo = list(reversed(file.absolute().parts[1:]))
    here = Path("/")
    yield here, here.lstat()
    links = 0
    while todo:
        name = todo.pop()
        if name in {"", "."}:
            continue
        here = here.parent if name == ".." else here / name
        status = here.lstat()
        yield here, status
        if stat.S_ISLNK(status.st_mode) and links < MOST_LINKS:
            links += 1
            target = here.readlink()
            todo += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            here = Path("/") if target.is_absolute() else here.parent


def _others(path: Path, status: os.stat_result, safe: set[int]) -> str | None:
    """Tell who else may write one file or folder."""
    if status.st_mode & stat.S_IWOTH:
        return "everybody"
    if not status.st_mode & stat.S_IWGRP:  # with an ACL these bits are its mask: nobody whom it names may write
        return None
    for tag, may, number in _acl(path) or [(_GROUP_OWNER, _WRITE, 0)]:
        gid = status.st_gid if tag == _GROUP_OWNER else number
        if not may & _WRITE:
            continue
        if tag == _USER and number not in safe:
            return user(number)
        if tag in {_GROUP_OWNER, _GROUP} and not _private(gid, safe):
            return f"group {_group(gid)}"
    return None


def _acl(path: Path) -> list[tuple[int, int, int]]:
    """Return an ACL's entries as (tag, permissions, id); none where there is no ACL."""
    try:
        raw = os.getxattr(path, "system.posix_acl_access")
    except OSError:
        return []
    return [struct.unpack_from("<HHI", raw, place) for place in range(4, len(raw) - 7, 8)]


def _private(gid: int, safe: set[int]) -> bool:
    """Return whether a group is a trusted user's own: of the user's name, and with nobody else in it.

    Whose primary group it is stands in the users' entries alone. Where these cannot be listed (sssd and LDAP often
    refuse), a group of the user's number, too, is taken for one that was made for the user.
    """
    try:
        group = grp.getgrgid(gid)
        owner = pwd.getpwnam(group.gr_name)
    except KeyError:
        return False
    if owner.pw_uid not in safe or owner.pw_gid != gid or not set(group.gr_mem) <= {group.gr_name}:
        return False
    users = _users()
    return users.get(owner.pw_uid, gid if gid == owner.pw_uid else None) == gid and not any(
        primary == gid for uid, primary in users.items() if uid != owner.pw_uid
    )


@functools.cache
def _users() -> dict[int, int]:
    """Return each user's primary group, as far as users can be listed."""
    return {one.pw_uid: one.pw_gid for one in pwd.getpwall()}


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
