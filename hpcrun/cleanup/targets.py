"""Which jobs are cleaned up after, and on which nodes."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import schedulers
from hpcrun.allocation import Allocation
from hpcrun.cleanup.belonging import Mark
from hpcrun.errors import HpcrunError
from hpcrun.jobs import genuine, runs, select, states
from hpcrun.nodelist import expand, is_host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.states import State

RECORD = "cleaned.json"
"""The file in a run directory that says when, and on which nodes, nothing of the job was left."""


@dataclass(frozen=True)
class Target:
    """A job to clean up after.

    Attributes:
        run: Its run.
        state: Its state.
        nodes: The nodes that it had.
    """

    run: Run
    state: State
    nodes: tuple[str, ...]

    @property
    def runs(self) -> bool:
        """Whether the job has not ended, as far as anybody knows."""
        return not self.state.finished

    @property
    def mark(self) -> Mark:
        """By what its processes and files are known."""
        run, begun = self.run, self.run.submission.submitted
        record = run.ended()
        told = record.ended if record else None
        over = inf if told is None else told
        last = inf if self.runs else _last_sign(run) if told is None else over
        if run.scheduler != "slurm":
            return Mark(str(run.directory), run.submission.allocation, begun, None, (), over, last, run.spellings)
        ended = over if self.runs or told is not None else None
        ids = filter(genuine.is_job_id, dict.fromkeys([*run.job_ids(), *run.slurm_ids()]))
        others = tuple(job for job in ids if job != run.job_id)
        return Mark(str(run.directory), run.job_id, begun, ended, others, over, last, run.spellings)

    @property
    def hostfiles(self) -> list[Path]:
        """The hostfiles that the job made."""
        return sorted([*self.run.directory.glob("hostfile"), *self.run.directory.glob(".hostfile.*")])


def choose(words: Sequence[str], *, everything: bool, hostfile: Path | None) -> tuple[list[Target], list[str]]:
    """Choose jobs.

    Args:
        words: What names them, as for `select.select`, or the scripts that they ran.
        everything: All of this user's jobs that have ended, instead; so it is without words, too.
        hostfile: The nodes to look at, instead of those that each job had.

    Returns:
        The jobs, and what people should know of those left out.

    Raises:
        HpcrunError: There is no such job, or its records are not this user's own.
    """
    if everything and words:
        raise HpcrunError("both jobs and --all given", hint="hpcrun cleanup JOB ..., or hpcrun cleanup --all")
    hosts = tuple(host.name for host in Allocation.from_hostfile(hostfile).hosts) if hostfile else ()
    if not words:
        chosen = [(run, False) for run in runs.every() if run.job_id and not _is_clean(run)]
    else:
        chosen = list({run.directory: (run, exact) for word in words for run, exact in _named(word)}.values())
    targets, notes = [], []
    chosen, refused = _genuine(chosen)
    if refused and (any(exact for exact, _ in refused) or not (chosen or not words)):
        raise next(error for exact, error in sorted(refused, key=lambda one: not one[0]))
    notes += [str(error) for _, error in refused]
    told = schedulers.states([run for run, _ in chosen])
    for run, exact in chosen:
        state = told[run]
        nodes = hosts or nodes_of(run, state)
        if state.name == "UNKNOWN" and not nodes:
            what = (
                f"job {run.job_id} ({run.name}) is UNKNOWN ({state.reason}), and so is every node that it may have had"
            )
            notes.append(f"{what}: --hostfile FILE names nodes to look at")
        elif state.finished or exact:
            targets.append(Target(run, state, nodes))
        else:
            what = f"job {run.job_id} ({run.name}) is {state.name}"
            notes.append(f"{what} and left alone: hpcrun cleanup {run.job_id} ends it")
    if words and not targets:
        alone = not any(exact for _, exact in chosen)
        raise HpcrunError("; ".join(notes), hint="name a job by its id to end it" if alone else None)
    return targets, notes


def _last_sign(run: Run) -> float:
    """Return when a job wrote last, in seconds since 1970: one that nobody has seen end ended no sooner."""
    written = [run.submission.submitted]
    for pattern in ("*_0_log.*", "logs/rank-*.log", "heartbeats/*.json", "starts.jsonl", "exit.json"):
        for file in run.directory.glob(pattern):
            with suppress(OSError):
                written.append(file.lstat().st_mtime)
    return max(written)


def _genuine(chosen: Sequence[tuple[Run, bool]]) -> tuple[list[tuple[Run, bool]], list[tuple[bool, HpcrunError]]]:
    """Return the runs whose records may be acted on, and why those of the others may not, each with its word's kind."""
    used, refused = [], []
    for run, exact in chosen:
        try:
            genuine.require(run)
            used.append((run, exact))
        except HpcrunError as error:
            refused.append((exact, error))
    return used, refused


def _named(word: str) -> list[tuple[Run, bool]]:
    """Return the runs that a word names, and whether it names each one, rather than all of a kind."""
    try:
        found = select.select([word])
    except select.GoneError as error:
        found = [run for run in error.runs if run.job_id]
        if not found:
            raise
    except HpcrunError:
        script = Path(word).name
        found = [run for run in runs.every() if run.job_id and script in map(_file_name, run.spec.argv[:2])]
        if not found:
            raise
        return [(run, False) for run in found]
    if not any(run.job_id for run in found):
        if why := found[0].faults.get("submitted.json"):
            raise HpcrunError(f"{found[0].directory}/submitted.json {why}", hint="hpcrun did not write it so")
        raise HpcrunError(f"{found[0].directory} was never submitted", hint="there is nothing to clean up")
    return [(run, not select.broad(word)) for run in found if run.job_id]


def _file_name(path: str) -> str:
    return Path(path).name


def nodes_of(run: Run, state: State) -> tuple[str, ...]:
    """Return the nodes that a job had, as far as its scheduler and its files know them, each once."""
    found: dict[str, None] = {}
    if run.scheduler == "slurm" and not re.match(r"$|None|\(", state.nodes):  # sacct: None assigned; squeue: (null)
        with suppress(HpcrunError):
            found |= dict.fromkeys(expand(state.nodes))
    with suppress(HpcrunError):
        found |= dict.fromkeys(host.name for host in Allocation.from_hostfile(run.directory / "hostfile").hosts)
    for nodes in run.nodes():  # also those that it had before it was started again
        with suppress(HpcrunError):
            found |= dict.fromkeys(expand(nodes))
    found |= dict.fromkeys(clean.nodes if (clean := run.cleaned()) else ())
    ended = run.record()
    script = run.submission.host if run.scheduler != "slurm" else ended.host if ended else ""
    if script and not any(is_same(script, node) for node in found):
        found[script] = None
    return tuple(filter(is_host, found))  # a name that begins with a dash would be an option of ssh


def is_same(host: str, node: str) -> bool:
    """Return whether two names, one of which may have a domain, are one host's."""
    return host == node or host.startswith(f"{node}.") or node.startswith(f"{host}.")


def is_here(node: str) -> bool:
    """Return whether a name is this host's."""
    return node == "localhost" or is_same(os.uname().nodename, node)


def _is_clean(run: Run) -> bool:
    """Return whether nothing was left of a job that has not been started again since.

    What earlier versions wrote down counts only where the run directory has one path: they looked for one alone.
    """
    record, clean = run.record(), run.cleaned()
    begun = record.started if record else run.submission.submitted
    looked_for = clean.run_dirs or [str(run.directory)] if clean else ()
    return bool(clean and clean.time > begun and set(run.spellings) <= set(looked_for))


def unfinished(state: State) -> bool:
    """Return whether a job may still be there for Slurm to end."""
    return state.name in states.UNFINISHED - {"UNKNOWN"}
