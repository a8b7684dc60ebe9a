"""Detection of other users who can write a file, or replace it through a folder above it.

Owners, mode bits and POSIX ACLs (acl(5)) are checked; NFSv4 ACLs only as far as the mode bits reflect them.
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
"""Maximum number of symbolic links that the kernel follows (path_resolution(7))."""

_USER, _GROUP_OWNER, _GROUP, _MASK = 0x02, 0x04, 0x08, 0x10  # acl(5): tags of entries
_WRITE_BIT = 2


def find_other_writer(
    file: Path,
    trusted_uids: frozenset[int] = frozenset(),
    file_stat: os.stat_result | None = None,
    *,
    file_only: bool = False,
) -> str | None:
    """Find a user or group, other than root, this user and trusted users, that can change a file or folder.

    Args:
        file: The file or folder.
        trusted_uids: The uids of trusted users.
        file_stat: The stat result from when the file was read; None for the current one.
        file_only: Whether to check only the file, and not the folders through which it can be replaced.

    Returns:
        A description, such as ``bob owns /shared/lab``; None if no other user can change the file.

    Raises:
        OSError: The file does not exist, or is not accessible.
    """
    safe_uids = {0, os.geteuid(), *trusted_uids}
    # the owner of / controls everything below it; in a user namespace, the owner of root's folders is nobody
    folder_uids = safe_uids | {Path("/").stat().st_uid}
    closed_folder = None
    for path, path_stat in _walk_path(file):
        is_folder, is_link = stat.S_ISDIR(path_stat.st_mode), stat.S_ISLNK(path_stat.st_mode)
        checked_stat = path_stat if is_folder or is_link else file_stat or path_stat
        is_checked = not file_only or not (is_folder or is_link)
        if is_checked and checked_stat.st_uid not in (folder_uids if is_folder or is_link else safe_uids):
            return f"{name_of_uid(checked_stat.st_uid)} owns {path}"
        # in a sticky folder only the owner of an entry can replace it, and that owner is checked next
        is_sticky = is_folder and checked_stat.st_mode & stat.S_ISVTX
        is_protected = closed_folder and path.is_relative_to(closed_folder)
        if (
            is_checked
            and not (is_link or is_sticky or is_protected)
            and (other_writer := _find_other_writer_of(path, checked_stat, safe_uids))
        ):
            return f"{other_writer} may write {path}"
        if is_folder and not is_protected:  # nobody else can reach files below a folder that only its owner may enter
            open_to_others = (
                checked_stat.st_mode & (stat.S_IXGRP | stat.S_IXOTH) or checked_stat.st_uid not in safe_uids
            )
            closed_folder = None if open_to_others else path
    return None


def name_of_uid(uid: int) -> str:
    """Return the name of a user, or ``user UID`` if the user has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _walk_path(file: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield each folder and symbolic link on the path of a file, from / on, and the file, with their stat results."""
    remaining_parts = list(reversed(file.absolute().parts[1:]))
    current_path = Path("/")
    yield current_path, current_path.lstat()
    link_count = 0
    while remaining_parts:
        name = remaining_parts.pop()
        if name in {"", "."}:
            continue
        current_path = current_path.parent if name == ".." else current_path / name
        path_stat = current_path.lstat()
        yield current_path, path_stat
        if stat.S_ISLNK(path_stat.st_mode) and link_count < MAX_LINKS:
            link_count += 1
            target = current_path.readlink()
            remaining_parts += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            current_path = Path("/") if target.is_absolute() else current_path.parent


def _find_other_writer_of(path: Path, path_stat: os.stat_result, safe_uids: set[int]) -> str | None:
    """Return another user or group that can write a file or folder; None if there is none."""
    if path_stat.st_mode & stat.S_IWOTH:
        return "everybody"
    if (
        not path_stat.st_mode & stat.S_IWGRP
    ):  # with an ACL, the group bits are the mask of the ACL: no entry allows writing
        return None
    for tag, may, number in _read_acl(path) or [(_GROUP_OWNER, _WRITE_BIT, 0)]:
        gid = path_stat.st_gid if tag == _GROUP_OWNER else number
        if not may & _WRITE_BIT:
            continue
        if tag == _USER and number not in safe_uids:
            return name_of_uid(number)
        if tag in {_GROUP_OWNER, _GROUP} and not _is_private_group(gid, safe_uids):
            return f"group {_group_name(gid)}"
    return None


def _read_acl(path: Path) -> list[tuple[int, int, int]]:
    """Return the entries of a file's ACL as (tag, permissions, uid or gid); empty without an ACL."""
    try:
        acl_bytes = os.getxattr(path, "system.posix_acl_access")
    except OSError:
        return []
    return [struct.unpack_from("<HHI", acl_bytes, offset) for offset in range(4, len(acl_bytes) - 7, 8)]


def _is_private_group(gid: int, safe_uids: set[int]) -> bool:
    """Return whether a group is the private group of a trusted user: it has the user's name and no other members.

    Primary groups are only in the passwd entries of users. If users cannot be listed (often with sssd and LDAP), a
    group with the same name and id as the user is considered private.
    """
    try:
        group = grp.getgrgid(gid)
        user = pwd.getpwnam(group.gr_name)
    except KeyError:
        return False
    if user.pw_uid not in safe_uids or user.pw_gid != gid or not set(group.gr_mem) <= {group.gr_name}:
        return False
    primary_groups = _primary_groups()
    return primary_groups.get(user.pw_uid, gid if gid == user.pw_uid else None) == gid and not any(
        primary == gid for uid, primary in primary_groups.items() if uid != user.pw_uid
    )


@functools.cache
def _primary_groups() -> dict[int, int]:
    """Return the gid of the primary group, by uid, of all users that can be listed."""
    return {one.pw_uid: one.pw_gid for one in pwd.getpwall()}


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
