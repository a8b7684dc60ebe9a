"""Having many nodes run one program at once: all that Slurm reaches by one command, the others each by its own."""

from __future__ import annotations

import math
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hpcrun.cleanup import calling
from hpcrun.cleanup.program import program
from hpcrun.cleanup.sweep import KILL_SECONDS
from hpcrun.schedulers import slurm
from hpcrun.schedulers.environment import clean
from hpcrun.secrets import mask_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.cleanup.calling import Replies
    from hpcrun.cleanup.ways import Way

AT_ONCE = 64
START_SECONDS = {"here": 60.0, "ssh": 30.0, "step": 60.0, "job": 180.0}
"""How long nodes may take to start a program before they count as unreachable: Slurm runs its Prolog before a job."""

COMPLETE_SECONDS = 60.0
"""How long a node may take for the end of the job before, with its Epilog."""

POLL_SECONDS = 1.0

_NAMES = {"here": "here", "ssh": "ssh", "step": "srun", "job": "srun"}
_MARKERS = ("HPCRUN_RUN_DIR", "HPCRUN_JOB_ID")  # what looks for a job's processes is none of them
_FLAGS = re.compile(r"[*~#!%$@^+-]+$")  # sinfo(1), NODE STATE CODES
_FREE = {"idle", "completing", "planned"}
_USABLE = {*_FREE, "mixed"}
_NOT_LAUNCHED = re.compile(r"[Ll]aunch .*failed on node ([\w.-]+)")


@dataclass(frozen=True)
class Visit:
    """What is to be done on one node.

    Attributes:
        node: The node.
        ways: How it may be reached; each is tried until one gets there.
        request: What the program is asked, see `hpcrun.cleanup.sweep.main`.
        conf: The slurm.conf of the Slurm that has the node, see `hpcrun.jobs.runs.Run.slurm_conf`.
    """

    node: str
    ways: tuple[Way, ...]
    request: dict[str, Any]
    conf: str | None = None


@dataclass(frozen=True)
class Answer:
    """What a node told.

    Attributes:
        node: The node.
        told: What was found and done there, by run directory; empty where the node was not reached.
        error: Why it was not reached; empty where it was.
        conf: The slurm.conf of the Slurm that has the node: another's may have one of the same name.
        unclaimed: The processes of which nothing tells whether they are a job's.
    """

    node: str
    told: dict[str, dict[str, Any]]
    error: str = ""
    conf: str | None = None
    unclaimed: tuple[dict[str, Any], ...] = ()


@dataclass
class _Group:
    """Visits that have the same way.

    Attributes:
        way: It.
        left: Those that have not answered yet, by their nodes.
        answers: What nodes told.
        errors: Why nodes were not reached, or not so far.
    """

    way: Way
    left: dict[str, Visit]
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def leave(self, node: str, why: str) -> None:
        """Go to a node no more."""
        self.errors[node] = why
        self.left.pop(node, None)

    def go(self, nodes: Sequence[str]) -> Replies:
        """Run one command for some of the nodes, and keep what they tell."""
        visits = [self.left[node] for node in nodes]
        request = visits[0].request
        environment = {name: value for name, value in clean(visits[0].conf).items() if name not in _MARKERS}
        acting = request["grace"] + KILL_SECONDS if request["act"] else 0
        command = self.way.command(nodes, minutes=math.ceil((START_SECONDS["job"] + acting) / 60))
        seconds = START_SECONDS[self.way.kind] + acting
        told = calling.run(command, program(_together(visits)), environment, len(nodes), seconds)
        last = f"no answer within {seconds:g} s" if told.late else (told.complaints or ["no answer"])[-1]
        for node in nodes:
            answer = told.answers.get(node) or (told.answers.get("") if len(nodes) == 1 else None)
            if answer:
                self.answers[node] = answer
                del self.left[node]
            else:
                self.errors[node] = last.removeprefix("srun: ").removeprefix("error: ")
        for node in set(_NOT_LAUNCHED.findall("\n".join(told.complaints))) & set(self.left):
            self.leave(node, "Slurm has it, but does not get through to it")
        return told


def _together(visits: Sequence[Visit]) -> dict[str, Any]:
    """Return the request of several visits, in which each job is told once."""
    first = visits[0].request
    if len(visits) == 1:
        return first
    marks = {mark["run_dir"]: mark for visit in visits for mark in visit.request["marks"]}
    places = {run_dir: place for place, run_dir in enumerate(marks)}
    nodes = {
        visit.node: {
            "marks": [places[mark["run_dir"]] for mark in visit.request["marks"]],
            "rooms": visit.request["rooms"],
        }
        for visit in visits
    }
    return {**first, "marks": list(marks.values()), "nodes": nodes}


def call(visits: Sequence[Visit]) -> list[Answer]:
    """Visit nodes, many at once, and return what each told, in order."""
    answers: dict[tuple[str, str | None], dict[str, Any]] = {}
    errors: dict[tuple[str, str | None], list[str]] = {}
    for turn in range(max((len(visit.ways) for visit in visits), default=0)):
        groups: dict[tuple[Way, str | None, str], _Group] = {}
        for visit in visits:
            if (visit.node, visit.conf) not in answers and turn < len(visit.ways):
                way = visit.ways[turn]
                key = (way, visit.conf, "" if way.by_slurm else visit.node)
                groups.setdefault(key, _Group(way, {})).left[visit.node] = visit
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(_try, groups.values()))
        for (way, conf, _), group in groups.items():
            answers |= {(node, conf): told for node, told in group.answers.items()}
            for node in set(group.errors) - set(group.answers):
                errors.setdefault((node, conf), []).append(f"{_NAMES[way.kind]}: {group.errors[node]}")
    return [_answer(visit, answers.get((visit.node, visit.conf)), errors) for visit in visits]


def _answer(visit: Visit, told: dict[str, Any] | None, errors: dict[tuple[str, str | None], list[str]]) -> Answer:
    if told is None:
        return Answer(visit.node, {}, "; ".join(errors.get((visit.node, visit.conf), ())), visit.conf)
    by_job = zip(visit.request["marks"], told["swept"], strict=True)
    unclaimed = tuple({**one, "command": mask_command(one["command"])} for one in told["unclaimed"])
    return Answer(visit.node, {mark["run_dir"]: one for mark, one in by_job}, "", visit.conf, unclaimed)


def _try(group: _Group) -> None:
    """Go to nodes by one command, without those that keep the others from it; then to these, each alone."""
    free = _leave_unusable(group) if group.way.kind == "job" else []
    late = False
    while nodes := list(group.left):
        late = group.go(nodes).late
        if late or len(group.left) in {0, len(nodes)}:
            break
    if late or not group.way.by_slurm:
        return
    if 0 < len(free := [node for node in free if node in group.left]) < len(group.left):
        group.go(free)  # others have room, perhaps, and Slurm gives all nodes that one asks for or none
    if len(nodes) > 1 and group.left:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda node: group.go([node]), list(group.left)))


def _leave_unusable(group: _Group) -> list[str]:
    """Leave nodes to which Slurm sends no job now, and return those that no job is on.

    It would refuse a job that asks for one of them, or have it wait as long as they are so.
    """
    told, deadline = _states(group), time.monotonic() + COMPLETE_SECONDS
    while "completing" in {state for state, _ in told.values()} and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)  # the job's end, or its Epilog
        told = _states(group)
    for node, (state, reason) in told.items():
        if state == "allocated":
            group.leave(node, "other jobs fill it")
        elif state not in _USABLE:
            group.leave(node, f"Slurm says that it is {state}{f' ({reason})' * (reason not in {'', 'none'})}")
    return [node for node, (state, _) in told.items() if state in _FREE and node in group.left]


def _states(group: _Group) -> dict[str, tuple[str, str]]:
    """Return what Slurm says of each node, and why; empty where it does not answer."""
    conf = next(iter(group.left.values())).conf
    command = ["sinfo", "--noheader", "--Node", f"--nodes={','.join(group.left)}", "--format=%N|%T|%E"]
    found = {}
    for line in slurm.lines(command, conf) or ():
        node, state, reason = [*line.split("|", 2), "", ""][:3]
        if node in group.left:
            silent = "not answering, " * ("*" in state)
            found[node] = (silent + _FLAGS.sub("", state), reason)
    return found
