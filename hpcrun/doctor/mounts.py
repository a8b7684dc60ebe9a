"""The file system of a folder. Compute nodes run this module, too, so it uses only the standard library."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

MOUNT_TABLE = Path("/proc/self/mountinfo")

NETWORK_TYPES = {
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "beegfs_nodev", "ceph", "panfs", "wekafs", "afs", "glusterfs",
    "orangefs", "pvfs2", "quobyte", "fuse.ceph", "fuse.glusterfs", "fuse.quobyte", "fuse.juicefs", "cifs", "dvs",
    "virtiofs", "9p",
}  # fmt: skip
"""Types of network file systems."""

LOCAL_TYPES = re.compile(r"ext\d|xfs|btrfs|overlay|tmpfs|ramfs|zfs|f2fs|vfat")
"""Pattern of file system types on a host's own disk or memory."""

_OCTAL_ESCAPE = re.compile(r"\\([0-7]{3})")


def find_mount(folder: Path) -> tuple[str, str]:
    """Return the type of a folder's file system, and its mount source, such as ``server:/export``.

    The source of a bind mount includes the mounted folder. Of several mounts at one path, the last one counts
    (proc_pid_mountinfo(5)).
    """
    real_path, depth, type_and_source = folder.resolve(), -1, ("", "")
    with suppress(OSError):
        for line in MOUNT_TABLE.read_text().splitlines():
            mount_fields, _, type_fields = (bind_root.split() for bind_root in line.partition(" - "))
            if len(mount_fields) > 4 and len(type_fields) > 1:
                mount_point = Path(_OCTAL_ESCAPE.sub(lambda code: chr(int(code[1], 8)), mount_fields[4]))
                if real_path.is_relative_to(mount_point) and len(mount_point.parts) >= depth:
                    bind_root = mount_fields[3] if mount_fields[3].startswith("/") and mount_fields[3] != "/" else ""
                    depth, type_and_source = len(mount_point.parts), (type_fields[0], f"{type_fields[1]}{bind_root}")
    return type_and_source
