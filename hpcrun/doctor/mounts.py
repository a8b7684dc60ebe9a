"""The file system of a folder. Nodes run this, too, so it uses only the standard library."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

TABLE = Path("/proc/self/mountinfo")

NETWORK_TYPES = {
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "beegfs_nodev", "ceph", "panfs", "wekafs", "afs", "glusterfs",
    "orangefs", "pvfs2", "quobyte", "fuse.ceph", "fuse.glusterfs", "fuse.quobyte", "fuse.juicefs", "cifs", "dvs",
    "virtiofs", "9p",
}  # fmt: skip
"""Types of network file systems."""

HOST_LOCAL = re.compile(r"ext\d|xfs|btrfs|overlay|tmpfs|ramfs|zfs|f2fs|vfat")
"""Types of file systems on a host's own disk or memory."""

_ESCAPED = re.compile(r"\\([0-7]{3})")


def find_mount(folder: Path) -> tuple[str, str]:
    """Return the type of a folder's file system, and the mount source, such as ``server:/export``.

    The source of a bind mount includes its root. The last mount of several at one path counts (proc_pid_mountinfo(5)).
    """
    real, best, found = folder.resolve(), -1, ("", "")
    with suppress(OSError):
        for line in TABLE.read_text().splitlines():
            before, _, after = (part.split() for part in line.partition(" - "))
            if len(before) > 4 and len(after) > 1:
                point = Path(_ESCAPED.sub(lambda code: chr(int(code[1], 8)), before[4]))
                if real.is_relative_to(point) and len(point.parts) >= best:
                    part = before[3] if before[3].startswith("/") and before[3] != "/" else ""
                    best, found = len(point.parts), (after[0], f"{after[1]}{part}")
    return found
