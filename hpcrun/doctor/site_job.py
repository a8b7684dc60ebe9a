"""The short job of ``hpcrun doctor --in-job`` and ``hpcrun site test``: its plan and its results."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hpcrun import job_levels, launchers, schedulers, submission, workload
from hpcrun.doctor.context import PROBE_ENVIRONMENT, PROBE_PROGRAM, probe_arguments
from hpcrun.finding import error
from hpcrun.gpus import count_local_gpus
from hpcrun.request import Request
from hpcrun.resources import parse_time
from hpcrun.scheduler import find_scheduler
from hpcrun.sites import loader
from hpcrun.watch.format import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.doctor.context import CheckContext
    from hpcrun.finding import Finding
    from hpcrun.jobs.runs import Run
    from hpcrun.sites.loader import LoadedSite
    from hpcrun.sites.site_model import Site
    from hpcrun.submission import Plan
    from hpcrun.why.explanation import Explanation
    from hpcrun.workload import Workload

DEFAULT_RANKS = 2
"""Default number of nodes on a cluster, and of ranks on a local site."""

CHECK_MINUTES, BENCHMARK_MINUTES = 5, 10
"""Default time limits in minutes: a scheduler starts a short job earlier than one with the site's default."""

BENCHMARK_ARGS = ("--max-size", "4M", "--nodes")
STALL_SECONDS = "120"
"""Stall timeout in seconds of the benchmark's ranks, far below the time limit."""

FILE_SYSTEM_DELAY_SECONDS = 15.0
"""Maximum delay until files that nodes have written are visible on this host."""


def plan_node_checks(context: CheckContext) -> Plan:
    """Plan the job of ``doctor --in-job``: one rank on each node, or two ranks on a local site.

    Raises:
        HpcrunError: The job cannot be submitted.
    """
    defaults = _default_resources(context.site, context.requested, CHECK_MINUTES)
    resources = {**defaults, **context.requested}
    if defaults:
        resources |= _gpus_per_node(job_levels.resolve_site(resources, context.site), resources)
        resources |= {"ntasks": resources["nodes"], "ntasks_per_node": 1}
    else:
        resources["ntasks"] = DEFAULT_RANKS
    args = ("--mpi", *probe_arguments(context.site, resources))
    return _plan(context.loaded_site, PROBE_PROGRAM, args, resources)


def plan_benchmark(site: str | None, requested_resources: dict[str, Any]) -> Plan:
    """Plan the job of ``site test``: the node probe and the workload ``allreduce``, with one rank per GPU or node.

    Args:
        site: The site's name or file; None to detect it.
        requested_resources: The values that the user requests, by Slurm's option names.

    Raises:
        HpcrunError: The job cannot be submitted.
    """
    loaded_site = loader.load_selected_site(site)
    defaults = _default_resources(loaded_site.site, requested_resources, BENCHMARK_MINUTES)
    count_options = {"nodes", "ntasks", "ntasks_per_node", "gpus_per_node"}
    if not (defaults or count_options & set(requested_resources) or count_local_gpus() > 1):
        defaults = {"ntasks": DEFAULT_RANKS, "gpus_per_node": "0"}
    resources = {"job_name": "site-test", **defaults, **requested_resources}
    benchmark, args = workload.find_workload("allreduce", BENCHMARK_ARGS)
    probe_argv = (*PROBE_PROGRAM.program, *probe_arguments(loaded_site.site, requested_resources), "--then")
    program = replace(benchmark, program=(*probe_argv, *benchmark.program[1:]))
    return _plan(loaded_site, program, args, resources, ("HPCRUN_STALL_SECONDS", STALL_SECONDS))


def _plan(
    loaded_site: LoadedSite,
    program: Workload,
    args: tuple[str, ...],
    resources: dict[str, Any],
    *environment: tuple[str, str],
) -> Plan:
    """Plan the job without writing or submitting anything."""
    job_settings: Any = {"snapshot": False, "max_requeue": 0, "memory_retries": 0}
    request = Request(None, resources=resources, environment=(*PROBE_ENVIRONMENT, *environment), **job_settings)
    return submission.plan(request, loaded_site, program, args)


def _default_resources(site: Site, requested_resources: dict[str, Any], minutes: int) -> dict[str, Any]:
    """Return the default resources: two nodes, if allowed, and a short time limit; empty for a local site."""
    if not find_scheduler(site.scheduler).has_queue:
        return {}
    resolved_site = job_levels.resolve_site(requested_resources, site)
    limits = resolved_site.limits
    has_one_rank = requested_resources.get("ntasks") == 1 and "nodes" not in requested_resources
    is_one_node = limits.max_nodes == 1 or launchers.site_launcher(resolved_site).starts_one_process or has_one_rank
    nodes = max(1 if is_one_node else DEFAULT_RANKS, limits.min_nodes or 1)
    max_time = limits.max_time_for(requested_resources.get("nodes") or nodes)
    max_minutes = min(parse_time(max_time) / 60, minutes) if max_time else minutes
    return {"nodes": nodes, "time": str(max(1, int(max_minutes)))}


def _gpus_per_node(site: Site, requested_resources: dict[str, Any]) -> dict[str, str]:
    """Return a request for all GPUs of a node, to check each; empty if the user or the site already requests GPUs."""
    max_gpus = site.limits.gpus_per_node
    max_gpus = max((count for count in site.limits.gpus_allowed if count <= (max_gpus or count)), default=max_gpus)
    is_requested = "gpus_per_node" in requested_resources or site.defaults.gpus_per_node
    return {} if is_requested or not max_gpus else {"gpus_per_node": str(max_gpus)}


def has_succeeded(run: Run) -> bool:
    """Return whether an ended job succeeded, by its exit record; by the scheduler if no record is visible yet."""
    record = run.end_record()
    if record and not record.may_restart:
        return record.exit_code == 0
    return schedulers.query_state(run).name == "COMPLETED"


def wait_for_results(run: Run, are_complete: Callable[[], bool]) -> bool:
    """Wait until the shared file system shows all results of a job that succeeded.

    Args:
        run: The ended job.
        are_complete: Function that reads the results, and returns whether they are complete.

    Returns:
        Whether the results are complete.
    """
    deadline = time.monotonic() + FILE_SYSTEM_DELAY_SECONDS * has_succeeded(run)
    while not (is_complete := are_complete()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return is_complete


def pending_finding(reason: Explanation, timeout: float) -> Finding:
    """Return the finding about a job that did not start in time.

    Args:
        reason: The reason why the job was pending.
        timeout: Time in seconds after which the job was cancelled.
    """
    diagnosis = reason.diagnosis
    problem = f"not started after {format_duration(timeout)} in the queue, and cancelled: {diagnosis.summary}"
    return error("job", problem, diagnosis.fix)
