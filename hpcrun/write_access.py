"""Checks which other users can write a file, or replace it through a folder above it.

It considers owners, mode bits, and POSIX ACLs (acl(5)), and an NFSv4 ACL as far as the mode bits reflect it.
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

MAX_LINKS = 40
"""Maximum number of links that the kernel follows (path_resolution(7))."""

_USER, _GROUP_OWNER, _GROUP, _MASK = 0x02, 0x04, 0x08, 0x10  # acl(5): tags of entries
_WRITE = 2


def find_other_writer(
    file: Path, trusted: frozenset[int] = frozenset(), read: os.stat_result | None = None, *, file_only: bool = False
) -> str | None:
    """Find a user or group, other than root, this user and trusted users, that can change a file or folder.

    Args:
        file: The file or folder.
        trusted: The ids of trusted users.
        read: The status of the file when it was read; None for its current status.
        file_only: Check only the file, not the folders through which it could be replaced.

    Returns:
        A description, such as ``bob owns /shared/lab``; None if nobody else can.

    Raises:
        OSError: The file does not exist, or is not accessible.
    """
    safe_uids = {0, os.geteuid(), *trusted}
    # the owner of / controls everything below it; in a user namespace, root's folders appear as nobody's
    above = safe_uids | {Path("/").stat().st_uid}
    closed = None
    for path, found in _walk_path(file):
        folder, link = stat.S_ISDIR(found.st_mode), stat.S_ISLNK(found.st_mode)
        status = found if folder or link else read or found
        counts = not file_only or not (folder or link)
        if counts and status.st_uid not in (above if folder or link else safe_uids):
            return f"{name_of_uid(status.st_uid)} owns {path}"
        # in a sticky folder only the owner of a name can replace it, and that owner is checked next
        sticky = folder and status.st_mode & stat.S_ISVTX
        is_protected = closed and path.is_relative_to(closed)
        if counts and not (link or sticky or is_protected) and (who := _find_other_writer_of(path, status, safe_uids)):
            return f"{who} may write {path}"
        if folder and not is_protected:  # nobody else can reach files below a folder that only its owner may enter
            open_to_others = status.st_mode & (stat.S_IXGRP | stat.S_IXOTH) or status.st_uid not in safe_uids
            closed = None if open_to_others else path
    return None


def name_of_uid(uid: int) -> str:
    """Return a user's name, or ``user UID`` without one."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _walk_path(file: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield each folder and link on the path to a file, from /, and the file."""
    todo = list(reversed(file.absolute().parts[1:]))
    current = Path("/")
    yield current, current.lstat()
    links = 0
    while todo:
        name = todo.pop()
        if name in {"", "."}:
            continue
        current = current.parent if name == ".." else current / name
        status = current.lstat()
        yield current, status
        if stat.S_ISLNK(status.st_mode) and links < MAX_LINKS:
            links += 1
            target = current.readlink()
            todo += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            current = Path("/") if target.is_absolute() else current.parent


def _find_other_writer_of(path: Path, status: os.stat_result, safe_uids: set[int]) -> str | None:
    """Find another user or group that can write one file or folder."""
    if status.st_mode & stat.S_IWOTH:
        return "everybody"
    if not status.st_mode & stat.S_IWGRP:  # with an ACL these bits are its mask: nobody in it may write
        return None
    for tag, may, number in _read_acl(path) or [(_GROUP_OWNER, _WRITE, 0)]:
        gid = status.st_gid if tag == _GROUP_OWNER else number
        if not may & _WRITE:
            continue
        if tag == _USER and number not in safe_uids:
            return name_of_uid(number)
        if tag in {_GROUP_OWNER, _GROUP} and not _is_private_group(gid, safe_uids):
            return f"group {_group_name(gid)}"
    return None


def _read_acl(path: Path) -> list[tuple[int, int, int]]:
    """Return the entries of an ACL as (tag, permissions, id); empty without an ACL."""
    try:
        raw = os.getxattr(path, "system.posix_acl_access")
    except OSError:
        return []
    return [struct.unpack_from("<HHI", raw, place) for place in range(4, len(raw) - 7, 8)]


def _is_private_group(gid: int, safe_uids: set[int]) -> bool:
    """Return whether a group is the private group of a trusted user: of the user's name, and without other members.

    Users' primary groups are only in their passwd entries. Where these cannot be listed (often with sssd and LDAP), a
    group with the same name and id as the user is considered private.
    """
    try:
        group = grp.getgrgid(gid)
        owner = pwd.getpwnam(group.gr_name)
    except KeyError:
        return False
    if owner.pw_uid not in safe_uids or owner.pw_gid != gid or not set(group.gr_mem) <= {group.gr_name}:
        return False
    users = _primary_groups()
    return users.get(owner.pw_uid, gid if gid == owner.pw_uid else None) == gid and not any(
        primary == gid for uid, primary in users.items() if uid != owner.pw_uid
    )


@functools.cache
def _primary_groups() -> dict[int, int]:
    """Return the primary group of each user that can be listed."""
    return {one.pw_uid: one.pw_gid for one in pwd.getpwall()}


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
