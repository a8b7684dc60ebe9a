"""Search for files that a job left outside its run directory: in shared memory and in folders for temporary files.

Compute nodes also run this file, with any Python from 3.8: it imports only the standard library.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.cleanup.job_identity import CLOCK_SLACK_SECONDS
from hpcrun.removal import Leftover, reason_to_keep
from hpcrun.schedulers import processes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from hpcrun.cleanup.job_identity import JobIdentity
    from hpcrun.schedulers.processes import Process

SHARED_MEMORY = os.path.realpath("/dev/shm")  # noqa: S108 - the folder of POSIX shared memory segments
TEMPORARY_FOLDERS = (SHARED_MEMORY, "/tmp", "/var/tmp")  # noqa: S108 - folders that jobs use
_RUN_DIR_NAME = re.compile(r".+-\d{8}-\d{6}-[0-9a-f]{4,8}(?:\.\d+)?")  # the form of run directories' names
_MPI_SEGMENT = re.compile(
    r"mpich_sh(m|ar)_.+|Intel_MPI_.+|cray-shared-mem-coll-.+|shared_memory\.PMI\..+"  # MPICH and its derivatives
    r"|(vader|sm)_segment\..+|osc_(sm|rdma)\..+|open_mpi\.\d+"  # Open MPI
    r"|ucx_shm_posix_.+|psm[23]_shm\..+|nccl-\w{6}"  # communication libraries
)
"""Names of shared memory segments that MPI libraries create, and that only their ranks use."""


def find_leftovers(
    job: JobIdentity,
    job_processes: Collection[Process],
    other_processes: Collection[Process],
    folders: Collection[str] = TEMPORARY_FOLDERS,
) -> list[Leftover]:
    """Return the files and folders on this host that a job left, or may have left.

    A file or folder belongs to the job if

    - it has the name of the run directory and was created before the end of the job, or Slurm named it after the job.
      If its name only contains the name of the run directory, it is doubtful, because the user may have created it;
    - it is a shared memory segment, a socket or a pipe that only the job's processes have open, no older than the job;
    - it has the name of an MPI segment, was created while the job ran, and no process has it open.

    An ordinary file in a folder for temporary files is doubtful, because the user may want to keep it.

    Args:
        job: The job.
        job_processes: The job's processes.
        other_processes: All other processes of this user.
        folders: The folders to search.
    """
    folders = list(dict.fromkeys(map(os.path.realpath, folders)))
    leftovers = {leftover.path: leftover for leftover in _files_named_after(job, other_processes, folders)}
    # in a different mount namespace, such as a container's, the same path names a different file
    same_mounts = [process for process in job_processes if _mount_namespace(process.pid) == _mount_namespace()]
    open_inodes = {path: inode for process in same_mounts for path, inode in _open_files(process.pid, folders)}
    other_users = (
        {path: process for process in other_processes for path, _ in _open_files(process.pid, folders)}
        if open_inodes
        else {}
    )
    for path in sorted(set(open_inodes) - set(leftovers)):
        with suppress(OSError):
            file_stat = os.lstat(path)
            is_removable_type = stat.S_IFMT(file_stat.st_mode) in {stat.S_IFREG, stat.S_IFSOCK, stat.S_IFIFO}
            # another file may have replaced this one
            is_owned_by_user = file_stat.st_uid == os.getuid() and open_inodes[path] in {None, file_stat.st_ino}
            if (
                is_removable_type
                and is_owned_by_user
                and not _is_in_folders(path, [*leftovers, job.run_dir, *job.run_dir_aliases])
            ):
                reason = _reason_for_doubt(path, file_stat, job, other_users.get(path))
                leftovers[path] = Leftover(path, (file_stat.st_dev, file_stat.st_ino), reason)
    return [*leftovers.values(), *(segment for segment in _orphaned_segments(job) if segment.path not in leftovers)]


def _orphaned_segments(job: JobIdentity) -> list[Leftover]:
    """Return MPI segments that were created while the job ran, and that no process has open."""
    segments = []
    for entry in _scan_folder(SHARED_MEMORY):
        if _MPI_SEGMENT.fullmatch(entry.name):
            with suppress(FileNotFoundError):
                file_stat = entry.stat(follow_symlinks=False)
                creation_time = min(file_stat.st_mtime, file_stat.st_ctime)  # the oldest timestamp of the segment
                is_owned_by_user = file_stat.st_uid == os.getuid() and stat.S_ISREG(file_stat.st_mode)
                if (
                    is_owned_by_user
                    and job.submitted - CLOCK_SLACK_SECONDS <= creation_time <= job.ended + CLOCK_SLACK_SECONDS
                ):
                    segments.append(Leftover(entry.path, (file_stat.st_dev, file_stat.st_ino)))
    # list processes after segments, so that the process which created the newest segment is listed
    running_processes = processes.user_processes().values() if segments else ()
    used_paths = {path for process in running_processes for path, _ in _open_files(process.pid, [SHARED_MEMORY])}
    return [segment for segment in segments if segment.path not in used_paths]


def _reason_for_doubt(path: str, file_stat: os.stat_result, job: JobIdentity, other_process: Process | None) -> str:
    if other_process:
        return f"process {other_process.pid} ({other_process.name}), which is not the job's, has it open"
    if _creation_time(path, file_stat) < job.submitted - CLOCK_SLACK_SECONDS:
        return "it is older than the job"
    segment = path.startswith(f"{SHARED_MEMORY}/")
    return "" if segment or not stat.S_ISREG(file_stat.st_mode) else "it is an ordinary file that the job was writing"


def _creation_time(path: str, file_stat: os.stat_result) -> float:
    """Return the creation time of a file; its oldest timestamp if the file system does not store the creation time."""
    import subprocess  # imported on use, because few of the many nodes have these segments

    stdout = subprocess.run(["stat", "--format=%W", "--", path], stdout=subprocess.PIPE, text=True, check=False).stdout
    return float(stdout) if stdout.strip().isdigit() and int(stdout) else min(file_stat.st_mtime, file_stat.st_ctime)


def _files_named_after(
    job: JobIdentity, other_processes: Collection[Process], folders: Collection[str]
) -> Iterator[Leftover]:
    """Yield files and folders that are named after the run directory, and folders that Slurm named after the job.

    Files whose names only contain the name of the run directory are doubtful.
    """
    name = os.path.basename(job.run_dir)  # noqa: PTH119 - may be any bytes
    exact_names = [re.escape(name)] if _RUN_DIR_NAME.fullmatch(name) else []
    containing_pattern = re.compile(rf"(?<![A-Za-z0-9]){exact_names[0]}(?![A-Za-z0-9])" if exact_names else "(?!)")
    if job.slurm_job and job.slurm_ended is not None:  # folders of Slurm's plugin mpi/pmix
        ids = "|".join(map(re.escape, [job.slurm_job, *job.other_job_ids]))
        exact_names.append(rf"spmix_appdir_{os.getuid()}_(?:{ids})\.\d+")
    pattern = re.compile("|".join(exact_names) or "(?!)")
    run_dirs = {os.path.realpath(path) for path in (job.run_dir, *job.run_dir_aliases)}
    for folder in folders:
        for entry in _scan_folder(folder):
            if not (pattern.fullmatch(entry.name) or containing_pattern.search(entry.name)):
                continue
            with suppress(FileNotFoundError):
                file_stat = entry.stat(follow_symlinks=False)
                # the run root may be one of the searched folders, but a run directory is not a leftover
                if file_stat.st_uid == os.getuid() and not any(
                    _is_in_folders(f"{path}/", [entry.path]) for path in run_dirs
                ):
                    last_activity = job.last_activity + CLOCK_SLACK_SECONDS
                    partial_match = "" if pattern.fullmatch(entry.name) else "the run's name is only a part of its name"
                    reason = (
                        partial_match
                        or _check_creation_time(entry.path, file_stat, job)
                        or reason_to_keep(entry.path, file_stat, last_activity)
                    )
                    reason = reason or _find_user_process(entry.path, other_processes)
                    yield Leftover(entry.path, (file_stat.st_dev, file_stat.st_ino), reason, last_activity)


def _check_creation_time(path: str, file_stat: os.stat_result, job: JobIdentity) -> str:
    """Return how the creation time shows that the job did not create a file; empty if the job may have created it."""
    creation_time = _creation_time(path, file_stat)
    if creation_time < job.submitted - CLOCK_SLACK_SECONDS:
        return "it is older than the job"
    return "it was made after the job ended" if creation_time > job.last_activity + CLOCK_SLACK_SECONDS else ""


def _find_user_process(folder: str, other_processes: Collection[Process]) -> str:
    """Return a message about another process that uses a folder or a file in it; empty if there is none."""
    for process in other_processes:
        links = [f"/proc/{process.pid}/cwd", *(entry.path for entry in _scan_folder(f"/proc/{process.pid}/fd"))]
        for link in links:
            with suppress(OSError):
                path = os.readlink(link)  # noqa: PTH115 - may be any bytes
                if path == folder or _is_in_folders(path, [folder]):
                    return f"process {process.pid} ({process.name}), which is not the job's, uses it"
    return ""


def _scan_folder(folder: str) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except OSError:
        return []


def _open_files(pid: int, folders: Collection[str]) -> Iterator[tuple[str, int | None]]:
    """Yield the open files of a process in some folders: segments, sockets, pipes, and ordinary files open for writing.

    Each path is yielded with its inode number (None for a socket), because another file may have replaced it.
    """
    sockets: dict[str, str] = {}
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/net/unix").read_text(errors="surrogateescape").splitlines()[1:]:
            fields = line.split(None, 7)
            if len(fields) == 8:
                sockets[f"socket:[{fields[6]}]"] = fields[7]
    for entry in _scan_folder(f"/proc/{pid}/fd"):
        with suppress(OSError):
            link = os.readlink(entry.path)  # noqa: PTH115 - may be any bytes
            path = sockets.get(link, link)
            segment = path.startswith(f"{SHARED_MEMORY}/")
            if _is_in_folders(path, folders) and (segment or _is_open_for_writing(pid, entry.name)):
                yield path, None if link in sockets else Path(entry.path).stat().st_ino
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines():
            fields = line.split(None, 5)
            if len(fields) == 6 and fields[5].startswith(f"{SHARED_MEMORY}/"):
                yield fields[5], int(fields[4])


def _is_open_for_writing(pid: int, descriptor: str) -> bool:
    flags = re.search(r"^flags:\s*(\d+)", Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text(), re.MULTILINE)
    return bool(flags and int(flags[1], 8) & os.O_ACCMODE)


def _is_in_folders(path: str, folders: Collection[str]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


def _mount_namespace(pid: int | str = "self") -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/mnt").readlink())
    except OSError:
        return ""
