"""Selection of the jobs to clean up after, and their nodes."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import schedulers
from hpcrun.allocation import Allocation
from hpcrun.cleanup.job_identity import JobIdentity
from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen
from hpcrun.jobs import record_trust, run_selection, runs, states
from hpcrun.nodelist import expand_nodelist, is_host_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.states import State

CLEANED_FILE = "cleaned.json"
"""The file in a run directory that records a complete cleanup: its time and the nodes."""


@frozen
class Target:
    """A job to clean up after.

    Attributes:
        run: The job's run.
        state: The job's state.
        nodes: The nodes on which the job ran.
    """

    run: Run
    state: State
    nodes: tuple[str, ...]

    @property
    def is_active(self) -> bool:
        """Whether the job may still be pending or running."""
        return not self.state.finished

    @property
    def identity(self) -> JobIdentity:
        """The properties that identify the job's processes and files."""
        run, submitted = self.run, self.run.submission.submitted
        record = run.end_record()
        recorded_end = record.ended if record else None
        end_time = inf if recorded_end is None else recorded_end
        last_activity = inf if self.is_active else _last_write(run) if recorded_end is None else end_time
        run_dir, aliases = str(run.directory), run.path_variants
        if not run.scheduler.uses_slurm:
            return JobIdentity(
                run_dir, run.submission.allocation, submitted, None, (), end_time, last_activity, aliases
            )
        slurm_end_time = end_time if self.is_active or recorded_end is not None else None
        ids = filter(record_trust.is_job_id, dict.fromkeys([*run.job_ids(), *run.slurm_ids()]))
        other_ids = tuple(job for job in ids if job != run.job_id)
        return JobIdentity(run_dir, run.job_id, submitted, slurm_end_time, other_ids, end_time, last_activity, aliases)

    @property
    def hostfiles(self) -> list[Path]:
        """The hostfiles that the job wrote."""
        return sorted([*self.run.directory.glob("hostfile"), *self.run.directory.glob(".hostfile.*")])


def select_targets(words: Sequence[str], *, all_jobs: bool, hostfile: Path | None) -> tuple[list[Target], list[str]]:
    """Select the jobs to clean up after.

    Args:
        words: Jobs as for `hpcrun.jobs.run_selection.select_runs`, or names of scripts that jobs ran. If empty, all
            ended jobs of this user are selected.
        all_jobs: Select all ended jobs of this user; not allowed together with `words`.
        hostfile: The nodes to clean, instead of the nodes on which each job ran.

    Returns:
        The selected jobs, and messages about jobs that are left out.

    Raises:
        HpcrunError: No job matches, or the records of a job are not trusted.
    """
    if all_jobs and words:
        raise HpcrunError("both jobs and --all given", hint="hpcrun cleanup JOB ..., or hpcrun cleanup --all")
    hosts = tuple(host.name for host in Allocation.from_hostfile(hostfile).hosts) if hostfile else ()
    if not words:
        selected_runs = [(run, False) for run in runs.list_runs() if run.job_id and not _is_clean(run)]
    else:
        selected_runs = list(
            {run.directory: (run, exact) for word in words for run, exact in _find_runs(word)}.values()
        )
    targets, messages = [], []
    selected_runs, rejected = _split_trusted(selected_runs)
    if rejected and (any(exact for exact, _ in rejected) or not (selected_runs or not words)):
        raise next(error for exact, error in sorted(rejected, key=lambda one: not one[0]))
    messages += [str(error) for _, error in rejected]
    job_states = schedulers.query_states([run for run, _ in selected_runs])
    for run, exact in selected_runs:
        state = job_states[run]
        nodes = hosts or job_nodes(run, state)
        if state.name == "UNKNOWN" and not nodes:
            subject = f"job {run.job_id} ({run.name}) is UNKNOWN ({state.reason}), and its nodes are not known either"
            messages.append(f"{subject}: name them with --hostfile FILE")
        elif state.finished or exact:
            targets.append(Target(run, state, nodes))
        else:
            subject = f"job {run.job_id} ({run.name}) is {state.name}"
            messages.append(f"{subject} and left alone: hpcrun cleanup {run.job_id} ends it")
    if words and not targets:
        selects_whole_groups = not any(exact for _, exact in selected_runs)
        raise HpcrunError("; ".join(messages), hint="name a job by its id to end it" if selects_whole_groups else None)
    return targets, messages


def _last_write(run: Run) -> float:
    """Return the time at which a job last wrote a file, in seconds since 1970; the job cannot have ended earlier."""
    times = [run.submission.submitted]
    for pattern in ("*_0_log.*", "logs/rank-*.log", "heartbeats/*.json", "starts.jsonl", "exit.json"):
        for file in run.directory.glob(pattern):
            with suppress(OSError):
                times.append(file.lstat().st_mtime)
    return max(times)


def _split_trusted(
    selected_runs: Sequence[tuple[Run, bool]],
) -> tuple[list[tuple[Run, bool]], list[tuple[bool, HpcrunError]]]:
    """Return the runs with trusted records, each with its flag from `_find_runs`, and the errors of all other runs."""
    trusted_runs, errors = [], []
    for run, exact in selected_runs:
        try:
            record_trust.require_trusted(run)
            trusted_runs.append((run, exact))
        except HpcrunError as error:
            errors.append((exact, error))
    return trusted_runs, errors


def _find_runs(word: str) -> list[tuple[Run, bool]]:
    """Return the runs that an argument selects, each with a flag: True if it names this run, False for a pattern."""
    try:
        selected_runs = run_selection.select_runs([word], purpose="modify")
    except run_selection.MissingRunError as error:
        selected_runs = [run for run in error.runs if run.job_id]
        if not selected_runs:
            raise
    except HpcrunError:
        script = Path(word).name
        selected_runs = [run for run in runs.list_runs() if run.job_id and script in map(_file_name, run.spec.argv[:2])]
        if not selected_runs:
            raise
        return [(run, False) for run in selected_runs]
    if not any(run.job_id for run in selected_runs):
        if fault := selected_runs[0].faults.get("submitted.json"):
            raise HpcrunError(
                f"{selected_runs[0].directory}/submitted.json {fault}", hint="hpcrun did not write it like that"
            )
        raise HpcrunError(f"{selected_runs[0].directory} was never submitted", hint="there is nothing to clean up")
    return [(run, not run_selection.is_wildcard(word)) for run in selected_runs if run.job_id]


def _file_name(path: str) -> str:
    return Path(path).name


def job_nodes(run: Run, state: State) -> tuple[str, ...]:
    """Return the nodes on which a job ran, from its scheduler and its files, without duplicates."""
    nodes: dict[str, None] = {}
    # without nodes, sacct prints None assigned, and squeue (null)
    if run.scheduler.uses_slurm and not re.match(r"$|None|\(", state.nodes):
        with suppress(HpcrunError):
            nodes |= dict.fromkeys(expand_nodelist(state.nodes))
    with suppress(HpcrunError):
        nodes |= dict.fromkeys(host.name for host in Allocation.from_hostfile(run.directory / "hostfile").hosts)
    for names in run.nodes():  # including nodes before a requeue
        with suppress(HpcrunError):
            nodes |= dict.fromkeys(expand_nodelist(names))
    nodes |= dict.fromkeys(clean_record.nodes if (clean_record := run.clean_record()) else ())
    record = run.exit_record()
    script_host = run.submission.host if not run.scheduler.has_queue else record.host if record else ""
    if script_host and not any(is_same_host(script_host, node) for node in nodes):
        nodes[script_host] = None
    return tuple(filter(is_host_name, nodes))  # ssh would take a name that begins with a dash as an option


def is_same_host(host: str, node: str) -> bool:
    """Return whether two names belong to the same host; one of them may include a domain."""
    return host == node or host.startswith(f"{node}.") or node.startswith(f"{host}.")


def is_local_host(node: str) -> bool:
    """Return whether a name is the name of the local host."""
    return node == "localhost" or is_same_host(os.uname().nodename, node)


def _is_clean(run: Run) -> bool:
    """Return whether a job is recorded as clean, and has not been started again since.

    Records of earlier versions name no run directories; they count only if the run directory has a single path.
    """
    exit_record, clean_record = run.exit_record(), run.clean_record()
    start_time = exit_record.started if exit_record else run.submission.submitted
    cleaned_paths = clean_record.run_dirs or [str(run.directory)] if clean_record else ()
    return bool(clean_record and clean_record.time > start_time and set(run.path_variants) <= set(cleaned_paths))


def can_be_cancelled(state: State) -> bool:
    """Return whether a job in this state can be cancelled, because Slurm may still know it."""
    return state.name in states.UNFINISHED_STATES - {"UNKNOWN"}
