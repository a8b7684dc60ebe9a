"""Files that a job left outside its run directory: in shared memory and in folders for temporary files.

Nodes run this file too, with any Python from 3.8: it imports the standard library alone.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.cleanup.belonging import SLACK
from hpcrun.removal import Leftover, mixed
from hpcrun.schedulers import processes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from hpcrun.cleanup.belonging import Mark
    from hpcrun.schedulers.processes import Process

SHARED_MEMORY = os.path.realpath("/dev/shm")  # noqa: S108 - where segments are
ROOMS = (SHARED_MEMORY, "/tmp", "/var/tmp")  # noqa: S108 - where jobs leave things
_UNIQUE = re.compile(r".+-\d{8}-\d{6}-[0-9a-f]{4,8}(?:\.\d+)?")  # the names that hpcrun gives to run directories
_OF_RANKS = re.compile(
    r"mpich_sh(m|ar)_.+|Intel_MPI_.+|cray-shared-mem-coll-.+|shared_memory\.PMI\..+"  # MPICH and its kin
    r"|(vader|sm)_segment\..+|osc_(sm|rdma)\..+|open_mpi\.\d+"  # Open MPI
    r"|ucx_shm_posix_.+|psm[23]_shm\..+|nccl-\w{6}"  # what carries messages for them
)
"""Names of segments that ranks make, and that are of no use to anybody after them."""


def leftovers(
    mark: Mark, theirs: Collection[Process], others: Collection[Process], rooms: Collection[str] = ROOMS
) -> list[Leftover]:
    """Return what a job left on this host, doubtful things included.

    What has the very name of the run directory and is no newer than the job is the job's, and so is what Slurm named
    after it; what has that name in its own may be what somebody made of it and keeps. A segment of shared
    memory, a socket or a pipe that its processes have open is the job's if no other process has it, and if it is no
    older than the job. So is a segment of ranks, by its name, that was made while the job ran and that no process has
    any more. An ordinary file in a folder for temporary files may be what somebody wants to keep.

    Args:
        mark: The job.
        theirs: Its processes.
        others: This user's other processes.
        rooms: The folders to look into.
    """
    rooms = list(dict.fromkeys(map(os.path.realpath, rooms)))
    found = {one.path: one for one in _named(mark, others, rooms)}
    # elsewhere, in a container, the same path is another file
    here = [process for process in theirs if _mounts(process.pid) == _mounts()]
    held = {path: inode for process in here for path, inode in _open(process.pid, rooms)}
    elsewhere = {path: process for process in others for path, _ in _open(process.pid, rooms)} if held else {}
    for path in sorted(set(held) - set(found)):
        with suppress(OSError):
            status = os.lstat(path)
            ordinary = stat.S_IFMT(status.st_mode) in {stat.S_IFREG, stat.S_IFSOCK, stat.S_IFIFO}
            own = status.st_uid == os.getuid() and held[path] in {
                None,
                status.st_ino,
            }  # its name may be another's by now
            if ordinary and own and not _inside(path, [*found, mark.run_dir, *mark.spellings]):
                doubt = _doubt(path, status, mark, elsewhere.get(path))
                found[path] = Leftover(path, (status.st_dev, status.st_ino), doubt)
    return [*found.values(), *(one for one in _orphaned(mark) if one.path not in found)]


def _orphaned(mark: Mark) -> list[Leftover]:
    """Return segments that ranks made while the job ran, all of which have died since: their names say no more."""
    found = []
    for entry in _entries(SHARED_MEMORY):
        if _OF_RANKS.fullmatch(entry.name):
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                made = min(status.st_mtime, status.st_ctime)  # what is written to a segment later does not count
                own = status.st_uid == os.getuid() and stat.S_ISREG(status.st_mode)
                if own and mark.begun - SLACK <= made <= mark.over + SLACK:
                    found.append(Leftover(entry.path, (status.st_dev, status.st_ino)))
    # looked at only now, so that a job that has just begun, and made one, is seen to have it
    alive = processes.mine().values() if found else ()
    used = {path for process in alive for path, _ in _open(process.pid, [SHARED_MEMORY])}
    return [one for one in found if one.path not in used]


def _doubt(path: str, status: os.stat_result, mark: Mark, other: Process | None) -> str:
    if other:
        return f"process {other.pid} ({other.name}), which is not the job's, has it open"
    if _born(path, status) < mark.begun - SLACK:
        return "it is older than the job"
    segment = path.startswith(f"{SHARED_MEMORY}/")
    return "" if segment or not stat.S_ISREG(status.st_mode) else "it is an ordinary file that the job was writing"


def _born(path: str, status: os.stat_result) -> float:
    """Return when a file was made; where the file system does not know, its oldest time."""
    told = subprocess.run(["stat", "--format=%W", "--", path], stdout=subprocess.PIPE, text=True, check=False).stdout
    return float(told) if told.strip().isdigit() and int(told) else min(status.st_mtime, status.st_ctime)


def _named(mark: Mark, others: Collection[Process], rooms: Collection[str]) -> Iterator[Leftover]:
    """Yield what has the run directory's name, or Slurm's name for the job; in doubt what has it only in its name."""
    name = os.path.basename(mark.run_dir)  # noqa: PTH119 - may be any bytes
    exact = [re.escape(name)] if _UNIQUE.fullmatch(name) else []
    like = re.compile(rf"(?<![A-Za-z0-9]){exact[0]}(?![A-Za-z0-9])" if exact else "(?!)")
    if mark.slurm_job and mark.ended is not None:  # of Slurm's plugin mpi/pmix
        jobs = "|".join(map(re.escape, [mark.slurm_job, *mark.others]))
        exact.append(rf"spmix_appdir_{os.getuid()}_(?:{jobs})\.\d+")
    pattern = re.compile("|".join(exact) or "(?!)")
    run_dirs = {os.path.realpath(path) for path in (mark.run_dir, *mark.spellings)}
    for room in rooms:
        for entry in _entries(room):
            if not (pattern.fullmatch(entry.name) or like.search(entry.name)):
                continue
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                # where run directories are in such a folder, the run directory itself has that name
                if status.st_uid == os.getuid() and not any(_inside(f"{path}/", [entry.path]) for path in run_dirs):
                    last = mark.last + SLACK
                    alone = "" if pattern.fullmatch(entry.name) else "the run's name is only a part of its name"
                    doubt = alone or _untimely(entry.path, status, mark) or mixed(entry.path, status, last)
                    doubt = doubt or _used(entry.path, others)
                    yield Leftover(entry.path, (status.st_dev, status.st_ino), doubt, last)


def _untimely(path: str, status: os.stat_result, mark: Mark) -> str:
    """Return why something cannot have been made by a job; empty where it can."""
    born = _born(path, status)
    if born < mark.begun - SLACK:
        return "it is older than the job"
    return "it was made after the job ended" if born > mark.last + SLACK else ""


def _used(folder: str, others: Collection[Process]) -> str:
    """Return which other process is in a folder, or has something in it open; empty for none."""
    for process in others:
        for link in [f"/proc/{process.pid}/cwd", *(entry.path for entry in _entries(f"/proc/{process.pid}/fd"))]:
            with suppress(OSError):
                path = os.readlink(link)  # noqa: PTH115 - may be any bytes
                if path == folder or _inside(path, [folder]):
                    return f"process {process.pid} ({process.name}), which is not the job's, uses it"
    return ""


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except OSError:
        return []


def _open(pid: int, rooms: Collection[str]) -> Iterator[tuple[str, int | None]]:
    """Yield what a process has open in some folders: segments, sockets and pipes, and ordinary files that it writes.

    With each path comes the inode, None for a socket: there may be another file by now.
    """
    sockets: dict[str, str] = {}
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/net/unix").read_text(errors="surrogateescape").splitlines()[1:]:
            fields = line.split(None, 7)
            if len(fields) == 8:
                sockets[f"socket:[{fields[6]}]"] = fields[7]
    for entry in _entries(f"/proc/{pid}/fd"):
        with suppress(OSError):
            link = os.readlink(entry.path)  # noqa: PTH115 - may be any bytes
            path = sockets.get(link, link)
            if _inside(path, rooms) and (path.startswith(f"{SHARED_MEMORY}/") or _writes(pid, entry.name)):
                yield path, None if link in sockets else Path(entry.path).stat().st_ino
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines():
            fields = line.split(None, 5)
            if len(fields) == 6 and fields[5].startswith(f"{SHARED_MEMORY}/"):
                yield fields[5], int(fields[4])


def _writes(pid: int, descriptor: str) -> bool:
    flags = re.search(r"^flags:\s*(\d+)", Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text(), re.MULTILINE)
    return bool(flags and int(flags[1], 8) & os.O_ACCMODE)


def _inside(path: str, folders: Collection[str]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


def _mounts(pid: int | str = "self") -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/mnt").readlink())
    except OSError:
        return ""
