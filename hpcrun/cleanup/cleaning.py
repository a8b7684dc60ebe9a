"""Cleaning up: stop what still runs, visit the nodes, write down what is clean."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from hpcrun import paths, schedulers
from hpcrun.cleanup import reach, ways
from hpcrun.cleanup.sweep import bystanders
from hpcrun.cleanup.targets import RECORD, is_here, nodes_of, unfinished
from hpcrun.errors import HpcrunError
from hpcrun.jobs import room
from hpcrun.schedulers.slurm import states_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from hpcrun.cleanup.reach import Answer, Visit
    from hpcrun.cleanup.targets import Target
    from hpcrun.jobs.job_record import JobRecord

END_SECONDS = 60.0
POLL_SECONDS = 0.5


def visits(targets: Sequence[Target], *, act: bool, force: bool, grace: float) -> list[Visit]:
    """Return one visit a node of each Slurm, for all jobs that had it.

    Args:
        targets: The jobs.
        act: End and remove what is found; else only look.
        force: Send SIGKILL to what does not heed SIGTERM.
        grace: Seconds that it has for that.
    """
    own = bystanders()
    allocations = _living_allocations(targets)
    nodes = dict.fromkeys((node, target.run.slurm_conf) for target in targets for node in target.nodes)
    found = []
    for node, conf in nodes:
        there = [target for target in targets if node in target.nodes and target.run.slurm_conf == conf]
        rooms = dict.fromkeys(room for target in there for room in target.run.spec.site.local_scratch)
        request = {
            "marks": [asdict(target.mark) for target in there],
            "bystanders": own,
            "rooms": list(rooms),
            "act": act,
            "force": force,
            "grace": grace,
        }
        found.append(reach.Visit(node, tuple(_ways(node, there, allocations)), request, conf))
    return found


def _living_allocations(targets: Iterable[Target]) -> Collection[tuple[str | None, str]]:
    """Return the allocations that local jobs stood in and that are still there: each one's slurm.conf and id."""
    ids: dict[str | None, list[str]] = {}
    for run in (target.run for target in targets if target.run.scheduler == "local"):
        if allocation := run.submission.allocation:
            ids.setdefault(run.slurm_conf, []).append(allocation)
    told = {conf: states_of(there, conf) or {} for conf, there in ids.items()}
    return {(conf, job) for conf, jobs in told.items() for job, state in jobs.items() if state.name == "RUNNING"}


def _ways(node: str, targets: Sequence[Target], allocations: Collection[tuple[str | None, str]]) -> Iterable[ways.Way]:
    """Return how a node may be reached, the likeliest way first, each once."""
    if is_here(node):
        return [ways.here()]
    inside, beside = [], []
    for target in targets:
        run, job = target.run, target.mark.slurm_job
        python = run.spec.python or sys.executable
        if run.spec.reach == "slurm":
            there = (run.slurm_conf, job) in allocations if run.scheduler == "local" else target.state.name == "RUNNING"
            if job and there:
                inside.append(ways.in_job(python, job))
            beside.append(ways.in_new_job(python, _options(run.spec)))
    python = targets[0].run.spec.python or sys.executable
    return dict.fromkeys([*inside[:1], *beside[:1], ways.over_ssh(python)])


def _options(spec: JobRecord) -> list[str]:
    """Return the srun options of a short job where another one was allowed."""
    resources = spec.resources
    asked = {"partition": resources.partition, "account": resources.account, "qos": resources.qos}
    options = [f"--{name}={value}" for name, value in asked.items() if value]
    forbidden = {option.partition("=")[0] for option in spec.site.sbatch_forbidden}
    return options if "--mem" in forbidden else [*options, "--mem=100M"]


def stop(target: Target) -> Target:
    """End a job that runs in Slurm's queue, with Slurm's own grace time, and return it as it is then.

    What runs on this machine without a queue is ended as what it left is.
    """
    run, state = target.run, target.state
    if run.scheduler != "slurm" or not unfinished(state):
        return target
    try:
        schedulers.of(run).cancel(run)
    except HpcrunError:
        if not schedulers.state(run).finished:  # it may have ended meanwhile
            raise
    deadline = time.monotonic() + END_SECONDS
    while not (state := schedulers.state(run)).finished and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return replace(target, state=state, nodes=tuple(dict.fromkeys([*target.nodes, *nodes_of(run, state)])))


def remaining(answer: Answer) -> bool:
    """Return whether something that is beyond doubt a job's is still on a node, or may be."""
    return bool(answer.error) or any(
        told["survivors"] or any(not one["doubtful"] for one in told["left"]) for told in answer.told.values()
    )


def close(targets: Sequence[Target], answers: Sequence[Answer]) -> list[str]:
    """Remove the hostfiles of jobs of which nothing is left on any node, and write down that it is so.

    Returns:
        The hostfiles that were removed.

    Raises:
        HpcrunError: There is no room to write it down.
    """
    by_node = {(answer.node, answer.conf): answer for answer in answers}
    removed, full = [], []
    for target in targets:
        ended = not target.runs or schedulers.state(target.run).finished
        if not ended or any(remaining(by_node[node, target.run.slurm_conf]) for node in target.nodes):
            continue
        nodes = sorted({*target.nodes, *nodes_of(target.run, target.state)})
        told = {"time": time.time(), "nodes": nodes, "run_dirs": target.run.spellings}
        try:
            paths.write_atomically(target.run.directory / RECORD, json.dumps(told).encode())
            for hostfile in target.hostfiles:
                hostfile.unlink()
                removed.append(str(hostfile))
        except OSError as error:
            if error.errno in room.FULL:
                full.append(f"{target.run.directory / RECORD}: {error.strerror}")
    if full:
        what = "nothing is left of these jobs, but that cannot be written down: " + "; ".join(full)
        raise HpcrunError(what, hint="make room there, and run hpcrun cleanup again", exit_code=1)
    return removed
