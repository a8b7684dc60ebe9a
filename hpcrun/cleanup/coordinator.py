"""Coordination of a cleanup: cancellation of running jobs, a plan for each node, and records of clean jobs."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from hpcrun import paths, schedulers
from hpcrun.cleanup.node import find_caller_processes
from hpcrun.cleanup.node_cleanups import NodeCleanup
from hpcrun.cleanup.selection import CLEANED_FILE, can_be_cancelled, is_local_host, job_nodes
from hpcrun.cleanup.transports import job_transport, local_transport, ssh_transport, step_transport
from hpcrun.errors import HpcrunError
from hpcrun.jobs import disk_space
from hpcrun.jobs.poll_backoff import PollBackoff
from hpcrun.schedulers.slurm_client import SlurmClient

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from hpcrun.cleanup.node_cleanups import NodeResult
    from hpcrun.cleanup.selection import Target
    from hpcrun.cleanup.transports import Transport
    from hpcrun.jobs.job_record import JobRecord

CANCEL_SECONDS = 60.0


def plan_node_cleanups(targets: Sequence[Target], *, dry_run: bool, force: bool, grace: float) -> list[NodeCleanup]:
    """Return one `NodeCleanup` for each node of each Slurm cluster, for all jobs that ran on this node.

    Args:
        targets: The jobs to clean up after.
        dry_run: Only list processes and files; otherwise end the processes and remove the files.
        force: Send SIGKILL to processes that ignore SIGTERM.
        grace: The grace period after SIGTERM, in seconds.
    """
    caller = find_caller_processes()
    allocations = _running_allocations(targets)
    nodes = dict.fromkeys((node, target.run.slurm_conf) for target in targets for node in target.nodes)
    node_cleanups = []
    for node, slurm_conf in nodes:
        targets_on_node = [target for target in targets if node in target.nodes and target.run.slurm_conf == slurm_conf]
        folders = dict.fromkeys(folder for target in targets_on_node for folder in target.run.spec.site.local_scratch)
        request = {
            "jobs": [asdict(target.identity) for target in targets_on_node],
            "caller": caller,
            "folders": list(folders),
            "dry_run": dry_run,
            "force": force,
            "grace": grace,
        }
        node_cleanups.append(
            NodeCleanup(node, tuple(_list_transports(node, targets_on_node, allocations)), request, slurm_conf)
        )
    return node_cleanups


def _running_allocations(targets: Iterable[Target]) -> Collection[tuple[str | None, str]]:
    """Return the slurm.conf and the job id of each running allocation in which local jobs were started."""
    ids: dict[str | None, list[str]] = {}
    for run in (target.run for target in targets if not target.run.scheduler.has_queue):
        if allocation := run.submission.allocation:
            ids.setdefault(run.slurm_conf, []).append(allocation)
    states = {conf: SlurmClient(conf).query_states(jobs) or {} for conf, jobs in ids.items()}
    return {(conf, job) for conf, jobs in states.items() for job, state in jobs.items() if state.name == "RUNNING"}


def _list_transports(
    node: str, targets: Sequence[Target], allocations: Collection[tuple[str | None, str]]
) -> Iterable[Transport]:
    """Return the transports to a node, in the order in which they are tried."""
    if is_local_host(node):
        return [local_transport()]
    step_transports, job_transports = [], []
    for target in targets:
        run, job = target.run, target.identity.slurm_job
        python = run.spec.python or sys.executable
        if run.spec.transport == "slurm":
            is_local = not run.scheduler.has_queue
            is_running = (run.slurm_conf, job) in allocations if is_local else target.state.name == "RUNNING"
            if job and is_running:
                step_transports.append(step_transport(python, job))
            job_transports.append(job_transport(python, _srun_options(run.spec)))
    python = targets[0].run.spec.python or sys.executable
    return dict.fromkeys([*step_transports[:1], *job_transports[:1], ssh_transport(python)])


def _srun_options(spec: JobRecord) -> list[str]:
    """Return the srun options of a short job, with the partition, account and QOS of an earlier job."""
    resources = spec.resources
    requested_options = {"partition": resources.partition, "account": resources.account, "qos": resources.qos}
    options = [f"--{name}={value}" for name, value in requested_options.items() if value]
    forbidden_options = {option.partition("=")[0] for option in spec.site.sbatch_forbidden}
    return options if "--mem" in forbidden_options else [*options, "--mem=100M"]


def cancel_job(target: Target) -> Target:
    """Cancel a Slurm job, with Slurm's grace period, and return the job with its new state.

    A local job is returned unchanged: the cleanup of its node ends its processes.
    """
    run, state = target.run, target.state
    if not run.scheduler.has_queue or not can_be_cancelled(state):
        return target
    try:
        run.scheduler.cancel(run)
    except HpcrunError:
        if not schedulers.query_state(run).finished:  # the job may have ended in the meantime
            raise
    backoff, deadline = PollBackoff([run]), time.monotonic() + CANCEL_SECONDS
    backoff.reset()
    while time.monotonic() < deadline:
        backoff.start_interval()
        if (state := schedulers.query_state(run)).finished:
            break
        time.sleep(max(0.0, backoff.seconds_left()))
    return replace(target, state=state, nodes=tuple(dict.fromkeys([*target.nodes, *job_nodes(run, state)])))


def has_leftovers(result: NodeResult) -> bool:
    """Return whether processes or files of a job are, or may be, left on a node; doubtful files do not count."""
    return bool(result.error) or any(
        job_report.survivors or any(not file.doubtful for file in job_report.left)
        for job_report in result.jobs.values()
    )


def record_clean_jobs(targets: Sequence[Target], results: Sequence[NodeResult]) -> list[str]:
    """Remove the hostfiles of jobs that left nothing on any node, and record that these jobs are clean.

    Returns:
        The paths of the removed hostfiles.

    Raises:
        HpcrunError: The disk is too full to write a record.
    """
    results_by_node = {(result.node, result.slurm_conf): result for result in results}
    removed_hostfiles, disk_errors = [], []
    for target in targets:
        has_ended = not target.is_active or schedulers.query_state(target.run).finished
        if not has_ended or any(has_leftovers(results_by_node[node, target.run.slurm_conf]) for node in target.nodes):
            continue
        nodes = sorted({*target.nodes, *job_nodes(target.run, target.state)})
        record = {"time": time.time(), "nodes": nodes, "run_dirs": target.run.path_variants}
        try:
            paths.write_atomically(target.run.directory / CLEANED_FILE, json.dumps(record).encode())
            for hostfile in target.hostfiles:
                hostfile.unlink()
                removed_hostfiles.append(str(hostfile))
        except OSError as error:
            if error.errno in disk_space.DISK_FULL_ERRORS:
                disk_errors.append(f"{target.run.directory / CLEANED_FILE}: {error.strerror}")
    if disk_errors:
        message = "these jobs left nothing behind, but that cannot be recorded: " + "; ".join(disk_errors)
        raise HpcrunError(message, hint="free disk space there, and run hpcrun cleanup again", exit_code=1)
    return removed_hostfiles
