"""The file system that a folder is on, and who else may see it. Nodes are asked, too: the standard library alone."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TABLE = Path("/proc/self/mountinfo")

_ESCAPED = re.compile(r"\\([0-7]{3})")
_SHARED = {
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "beegfs_nodev", "ceph", "panfs", "wekafs", "afs", "glusterfs",
    "orangefs", "pvfs2", "quobyte", "fuse.ceph", "fuse.glusterfs", "fuse.quobyte", "fuse.juicefs", "cifs", "dvs",
    "virtiofs", "9p",
}  # fmt: skip
_OF_ONE_HOST = re.compile(r"ext\d|xfs|btrfs|overlay|tmpfs|ramfs|zfs|f2fs|vfat")


@dataclass(frozen=True)
class Mount:
    """A file system. It may be neither shared nor of one host, as far as its type tells.

    Attributes:
        kind: Its type; empty where nobody knows.
        source: What is mounted, such as ``server:/export``; of a part of a host's own disk, the part.
    """

    kind: str = ""
    source: str = ""

    @property
    def shared(self) -> bool:
        """Whether it is a network's."""
        return self.kind in _SHARED

    @property
    def of_one_host(self) -> bool:
        """Whether it is a host's own disk or memory."""
        return bool(_OF_ONE_HOST.fullmatch(self.kind))


def of(folder: Path) -> Mount:
    """Return the file system that a folder is on, of several at one place the last (proc_pid_mountinfo(5))."""
    real, best, found = folder.resolve(), -1, Mount()
    with suppress(OSError):
        for line in TABLE.read_text().splitlines():
            before, _, after = (part.split() for part in line.partition(" - "))
            if len(before) > 4 and len(after) > 1:
                point = Path(_ESCAPED.sub(lambda code: chr(int(code[1], 8)), before[4]))
                if real.is_relative_to(point) and len(point.parts) >= best:
                    part = before[3] if before[3].startswith("/") and before[3] != "/" else ""
                    best, found = len(point.parts), Mount(after[0], f"{after[1]}{part}")
    return found
