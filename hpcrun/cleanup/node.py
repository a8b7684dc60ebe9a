"""Cleanup of one node: the processes and files of jobs, and a report.

Compute nodes run this file, with any Python from 3.8: it imports only the standard library.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.cleanup.job_identity import JobIdentity, find_processes, find_unattributed_processes
from hpcrun.cleanup.leftover_files import TEMPORARY_FOLDERS, find_leftovers
from hpcrun.removal import remove_leftover
from hpcrun.schedulers import processes

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from hpcrun.removal import Leftover
    from hpcrun.schedulers.processes import Process

KILL_SECONDS = 5.0
POLL_SECONDS = 0.05
REPLY_LINE_LENGTH = 700


def find_caller_processes() -> dict[str, Any]:
    """Return the processes of this command on this host, which cleanup must not end.

    If the command is typed in a shell that a job started, the shell and the command have the job's environment. The
    parents of the command and the processes of its session are therefore not ended. The result identifies each process
    by its start time and name, because a container may assign different pids.
    """
    all_processes = processes.user_processes()
    parent_pids = set(processes.ancestors(os.getpid()))
    session_id = os.getsid(0)
    pids = parent_pids | {pid for pid, process in all_processes.items() if process.session == session_id}
    return {
        "boot": _boot_id(),
        "processes": [[all_processes[pid].start, all_processes[pid].name] for pid in sorted(pids & set(all_processes))],
    }


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def clean_node(
    jobs: Sequence[JobIdentity],
    *,
    dry_run: bool,
    force: bool,
    grace: float,
    caller: dict[str, Any],
    folders: Collection[str],
) -> dict[str, Any]:
    """End processes and remove files that jobs left on this host.

    Args:
        jobs: The jobs.
        dry_run: Only report processes and files; otherwise end the processes and remove the files.
        force: Send SIGKILL to processes that still run after the grace period.
        grace: The grace period after SIGTERM, in seconds.
        caller: The result of `find_caller_processes` on the host on which the command was typed.
        folders: Folders to search in addition to `TEMPORARY_FOLDERS`.

    Returns:
        ``unattributed``: processes that may belong to a job, ``{pid, name, command, seconds}``. ``jobs``: for each job
            the ``processes`` of the job, the ``survivors`` that still run, and the ``spared`` processes of this
            command, each ``{pid, name}``; the ``files`` of the job, the ``removed`` files, and the files that are
            ``left``, each ``{path, why, doubtful}``.
    """
    all_processes = processes.user_processes()
    caller_pids = _find_caller_pids(caller, all_processes)
    processes_by_job = {job: find_processes(job, all_processes, caller_pids) for job in jobs}
    files = {}
    for job, job_processes in processes_by_job.items():
        pids = {process.pid for process in job_processes}
        other_processes = [process for pid, process in all_processes.items() if pid not in pids]
        files[job] = find_leftovers(
            job, job_processes, other_processes, [*TEMPORARY_FOLDERS, *map(os.path.expandvars, folders)]
        )
    survivors = processes_by_job if dry_run else _end_processes(processes_by_job, caller_pids, grace, force=force)
    attributed_pids = caller_pids | {
        process.pid for job_processes in [*processes_by_job.values(), *survivors.values()] for process in job_processes
    }
    reports = [
        {
            "processes": [_pid_and_name(process) for process in processes_by_job[job]],
            "survivors": [_pid_and_name(process) for process in survivors[job]],
            "spared": [
                _pid_and_name(all_processes[pid])
                for pid in sorted(caller_pids & set(all_processes))
                if job.owns_process(all_processes[pid])
            ],
            **_handle_files(files[job], dry_run=dry_run, has_processes=bool(survivors[job])),
        }
        for job in jobs
    ]
    unattributed_processes = find_unattributed_processes(jobs, processes.user_processes(), attributed_pids)
    return {"jobs": reports, "unattributed": [_describe_process(process) for process in unattributed_processes]}


def _pid_and_name(process: Process) -> dict[str, Any]:
    return {"pid": process.pid, "name": process.name}


def _describe_process(process: Process) -> dict[str, Any]:
    command_line = processes.command_line(process.pid) or process.name
    return {
        **_pid_and_name(process),
        "command": command_line,
        "seconds": max(0, int(time.time() - process.start_seconds)),
    }


def _find_caller_pids(caller: dict[str, Any], all_processes: dict[int, Process]) -> set[int]:
    pids = set(processes.ancestors(os.getpid()))
    if caller["boot"] == _boot_id():
        caller_processes = caller["processes"]
        pids |= {pid for pid, process in all_processes.items() if [process.start, process.name] in caller_processes}
    return pids


def _end_processes(
    processes_by_job: dict[JobIdentity, list[Process]], caller_pids: set[int], grace: float, *, force: bool
) -> dict[JobIdentity, list[Process]]:
    """End processes, including processes that start in the meantime, and return the processes that still run."""
    known_processes = {
        job: {process.pid: process for process in job_processes} for job, job_processes in processes_by_job.items()
    }
    signalled_keys: set[tuple[int, int]] = set()

    def find_running() -> dict[JobIdentity, list[Process]]:
        all_processes = processes.user_processes()
        for job, job_processes in known_processes.items():
            # keep known processes: after the end of its parent, a process may no longer be linked to its job
            alive_processes = {
                pid: process
                for pid, process in job_processes.items()
                if pid in all_processes and all_processes[pid].start == process.start
            }
            known_processes[job] = {
                **alive_processes,
                **{process.pid: process for process in find_processes(job, all_processes, caller_pids)},
            }
        return {job: list(job_processes.values()) for job, job_processes in known_processes.items()}

    def signal_until_gone(seconds: float, *signals: signal.Signals, signal_repeatedly: bool) -> None:
        deadline = time.monotonic() + seconds
        while remaining := [process for job_processes in find_running().values() for process in job_processes]:
            for process in remaining:
                key = (process.pid, process.start)
                for signal_number in signals if signal_repeatedly or key not in signalled_keys else ():
                    processes.signal_process(process, signal_number)
                signalled_keys.add(key)
            if time.monotonic() >= deadline:
                break
            time.sleep(POLL_SECONDS)

    # a stopped process handles SIGTERM only after SIGCONT
    signal_until_gone(grace, signal.SIGTERM, signal.SIGCONT, signal_repeatedly=False)
    if force:
        signal_until_gone(KILL_SECONDS, signal.SIGKILL, signal_repeatedly=True)
    return find_running()


def _handle_files(leftovers: list[Leftover], *, dry_run: bool, has_processes: bool) -> dict[str, Any]:
    """Remove the files of a job, except in a dry run, and return a report of them."""
    removed_paths, left_files = [], []
    for leftover in leftovers:
        reason = leftover.doubt or ("processes of the job still run" if has_processes else "")
        if not (dry_run or reason):
            reason = remove_leftover(leftover)
            removed_paths += [] if reason else [leftover.path]
        if reason and (not dry_run or leftover.doubt):
            left_files.append({"path": leftover.path, "why": reason, "doubtful": bool(leftover.doubt)})
    return {
        "files": [leftover.path for leftover in leftovers if not leftover.doubt],
        "removed": removed_paths,
        "left": left_files,
    }


def main(request: dict[str, Any]) -> None:
    """Execute a request and print the reply: one JSON line, or short lines with the node's name for several nodes.

    Slurm interleaves the output of several nodes if lines are longer than its buffers.
    """
    jobs = [
        JobIdentity(**{
            **job, "other_job_ids": tuple(job["other_job_ids"]), "run_dir_aliases": tuple(job["run_dir_aliases"]),
        })
        for job in request.pop("jobs")
    ]  # fmt: skip
    nodes = request.pop("nodes", None)
    if nodes is None:
        print(json.dumps(clean_node(jobs, **request)), flush=True)
        return
    node_name = os.environ["SLURMD_NODENAME"]
    node_request = nodes[node_name]
    request["folders"] = node_request["folders"]
    reply = json.dumps(clean_node([jobs[index] for index in node_request["jobs"]], **request))
    text = base64.b64encode(reply.encode()).decode()
    pieces = [text[start : start + REPLY_LINE_LENGTH] for start in range(0, len(text), REPLY_LINE_LENGTH)]
    for index, piece in enumerate(pieces):
        print("hpcrun-cleanup", node_name, index, len(pieces), piece, flush=True)
