"""What happens on one node: a job's processes are looked for and ended, its files removed, and all of it is told.

Nodes run this file too, with any Python from 3.8: it imports the standard library alone.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.cleanup.belonging import Mark, belonging, unclaimed
from hpcrun.cleanup.files import ROOMS, leftovers
from hpcrun.removal import remove
from hpcrun.schedulers import processes

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from hpcrun.removal import Leftover
    from hpcrun.schedulers.processes import Process

KILL_SECONDS = 5.0
POLL_SECONDS = 0.05
LINE = 700
"""Letters that a line of an answer has."""


def bystanders() -> dict[str, Any]:
    """Return what tells this command's own processes, on this host, from a job's.

    A shell that a job started has the job's marker, and so has this command if it is typed there: what led to this
    command, and what shares its terminal's session, is left alone. Start times and names also tell processes where
    nodes on this host count pids of their own.
    """
    mine = processes.mine()
    own = set(processes.ancestors(os.getpid()))
    session = os.getsid(0)
    pids = own | {pid for pid, process in mine.items() if process.session == session}
    return {"boot": _boot(), "processes": [[mine[pid].start, mine[pid].name] for pid in sorted(pids & set(mine))]}


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def sweep(
    marks: Sequence[Mark], *, act: bool, force: bool, grace: float, bystanders: dict[str, Any], rooms: Collection[str]
) -> dict[str, Any]:
    """Clean this host of jobs.

    Args:
        marks: The jobs.
        act: End and remove what is found; else only tell it.
        force: Send SIGKILL to what is there after the grace time.
        grace: Seconds between SIGTERM and what comes next.
        bystanders: What `bystanders` told where the command was typed.
        rooms: Folders to look into besides `ROOMS`.

    Returns:
        ``unclaimed`` processes, ``{pid, name, command, seconds}``: they may be a job's, and nothing tells. ``swept``,
        for each job: ``processes`` that were found and ``survivors``, both ``{pid, name}``; ``spared`` bystanders;
        ``files`` that were found and ``removed``; ``left`` files, ``{path, why, doubtful}``.
    """
    mine = processes.mine()
    spared = _spared(bystanders, mine)
    found = {mark: belonging(mark, mine, spared) for mark in marks}
    files = {}
    for mark, theirs in found.items():
        pids = {process.pid for process in theirs}
        others = [process for pid, process in mine.items() if pid not in pids]
        files[mark] = leftovers(mark, theirs, others, [*ROOMS, *map(os.path.expandvars, rooms)])
    left = _end(found, spared, grace, force=force) if act else found
    known = spared | {process.pid for theirs in [*found.values(), *left.values()] for process in theirs}
    swept = [
        {
            "processes": [_told(process) for process in found[mark]],
            "survivors": [_told(process) for process in left[mark]],
            "spared": [_told(mine[pid]) for pid in sorted(spared & set(mine)) if mark.owns(mine[pid])],
            **_files(files[mark], act=act, alive=bool(left[mark])),
        }
        for mark in marks
    ]
    return {"swept": swept, "unclaimed": [_described(one) for one in unclaimed(marks, processes.mine(), known)]}


def _told(process: Process) -> dict[str, Any]:
    return {"pid": process.pid, "name": process.name}


def _described(process: Process) -> dict[str, Any]:
    command = processes.command(process.pid) or process.name
    return {**_told(process), "command": command, "seconds": max(0, int(time.time() - process.started))}


def _spared(bystanders: dict[str, Any], mine: dict[int, Process]) -> set[int]:
    spared = set(processes.ancestors(os.getpid()))
    if bystanders["boot"] == _boot():
        own = bystanders["processes"]
        spared |= {pid for pid, process in mine.items() if [process.start, process.name] in own}
    return spared


def _end(found: dict[Mark, list[Process]], spared: set[int], grace: float, *, force: bool) -> dict[Mark, list[Process]]:
    """End processes, also those that start meanwhile, and return those that live on."""
    known = {mark: {process.pid: process for process in theirs} for mark, theirs in found.items()}
    told: set[tuple[int, int]] = set()

    def left() -> dict[Mark, list[Process]]:
        mine = processes.mine()
        for mark, theirs in known.items():
            # one whose parent has ended may not say any more whose it is
            alive = {pid: one for pid, one in theirs.items() if pid in mine and mine[pid].start == one.start}
            known[mark] = {**alive, **{process.pid: process for process in belonging(mark, mine, spared)}}
        return {mark: list(theirs.values()) for mark, theirs in known.items()}

    def until_gone(seconds: float, *numbers: signal.Signals, again: bool) -> None:
        deadline = time.monotonic() + seconds
        while remaining := [process for theirs in left().values() for process in theirs]:
            for process in remaining:
                key = (process.pid, process.start)
                for number in numbers if again or key not in told else ():
                    processes.send_to(process, number)
                told.add(key)
            if time.monotonic() >= deadline:
                break
            time.sleep(POLL_SECONDS)

    # one that is stopped hears SIGTERM only when it goes on
    until_gone(grace, signal.SIGTERM, signal.SIGCONT, again=False)
    if force:
        until_gone(KILL_SECONDS, signal.SIGKILL, again=True)
    return left()


def _files(found: list[Leftover], *, act: bool, alive: bool) -> dict[str, Any]:
    removed, left = [], []
    for one in found:
        why = one.doubt or ("the job's processes live" if alive else "")
        if act and not why:
            why = remove(one)
            removed += [] if why else [one.path]
        if why and (act or one.doubt):
            left.append({"path": one.path, "why": why, "doubtful": bool(one.doubt)})
    return {"files": [one.path for one in found if not one.doubt], "removed": removed, "left": left}


def main(request: dict[str, Any]) -> None:
    """Do what a request says, and print it: one JSON line, or short ones with the node's name where it is one of many.

    Slurm mixes the lines of several nodes where they are longer than its buffers.
    """
    marks = [
        Mark(**{**mark, "others": tuple(mark["others"]), "spellings": tuple(mark["spellings"])})
        for mark in request.pop("marks")
    ]
    nodes = request.pop("nodes", None)
    if nodes is None:
        print(json.dumps(sweep(marks, **request)), flush=True)
        return
    name = os.environ["SLURMD_NODENAME"]
    own = nodes[name]
    request["rooms"] = own["rooms"]
    told = json.dumps(sweep([marks[place] for place in own["marks"]], **request))
    text = base64.b64encode(told.encode()).decode()
    pieces = [text[at : at + LINE] for at in range(0, len(text), LINE)]
    for number, piece in enumerate(pieces):
        print("hpcrun-cleanup", name, number, len(pieces), piece, flush=True)
