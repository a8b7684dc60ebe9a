"""The short job of ``doctor --in-job`` and ``site test``: its plan, its results, and why it did not start."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hpcrun import job_levels, launchers, schedulers, submission, workload
from hpcrun.doctor.context import ENVIRONMENT, PROGRAM, probe_arguments
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
    from hpcrun.sites.model import Site
    from hpcrun.submission import Plan
    from hpcrun.why.explanation import Explanation
    from hpcrun.workload import Workload

RANKS = 2
"""Default number of nodes, and of ranks on a local site."""

CHECK_MINUTES, BENCHMARK_MINUTES = 5, 10
"""Default time limits: the scheduler starts a short job earlier than one with the site's default."""

BENCHMARK_ARGS = ("--max-size", "4M", "--nodes")
STALL_SECONDS = "120"
"""Stall timeout of the benchmark's ranks, far below the time limit."""

FILE_SYSTEM_DELAY_SECONDS = 15.0
"""Maximum delay until the shared file system shows the files of the nodes on this host."""


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
        resources["ntasks"] = RANKS
    args = ("--mpi", *probe_arguments(context.site, resources))
    return _plan(context.loaded_site, PROGRAM, args, resources)


def plan_benchmark(site: str | None, requested: dict[str, Any]) -> Plan:
    """Plan the job of ``site test``: that of the doctor, and the workload ``allreduce``, with one rank per GPU or node.

    Args:
        site: The site's name or file; None to detect it.
        requested: Values by Slurm's option names, as typed.

    Raises:
        HpcrunError: The job cannot be submitted.
    """
    loaded_site = loader.load_selected_site(site)
    defaults = _default_resources(loaded_site.site, requested, BENCHMARK_MINUTES)
    counts = {"nodes", "ntasks", "ntasks_per_node", "gpus_per_node"}
    if not (defaults or counts & set(requested) or count_local_gpus() > 1):
        defaults = {"ntasks": RANKS, "gpus_per_node": "0"}
    resources = {"job_name": "site-test", **defaults, **requested}
    benchmark, args = workload.find_workload("allreduce", BENCHMARK_ARGS)
    probe = (*PROGRAM.program, *probe_arguments(loaded_site.site, requested), "--then")
    program = replace(benchmark, program=(*probe, *benchmark.program[1:]))
    return _plan(loaded_site, program, args, resources, ("HPCRUN_STALL_SECONDS", STALL_SECONDS))


def _plan(
    loaded_site: LoadedSite,
    program: Workload,
    args: tuple[str, ...],
    resources: dict[str, Any],
    *environment: tuple[str, str],
) -> Plan:
    """Plan the job without writing or submitting anything."""
    once: Any = {"snapshot": False, "max_requeue": 0, "memory_retries": 0}
    request = Request(None, resources=resources, environment=(*ENVIRONMENT, *environment), **once)
    return submission.plan(request, loaded_site, program, args)


def _default_resources(site: Site, requested: dict[str, Any], minutes: int) -> dict[str, Any]:
    """Return two nodes, as far as the limits allow, and a short time limit; nothing for a local site."""
    if not find_scheduler(site.scheduler).has_queue:
        return {}
    resolved = job_levels.resolve_site(requested, site)
    limits = resolved.limits
    one_rank = requested.get("ntasks") == 1 and "nodes" not in requested
    one = limits.max_nodes == 1 or launchers.site_launcher(resolved).starts_one_process or one_rank
    nodes = max(1 if one else RANKS, limits.min_nodes or 1)
    limit = limits.max_time_for(requested.get("nodes") or nodes)
    most = min(parse_time(limit) / 60, minutes) if limit else minutes
    return {"nodes": nodes, "time": str(max(1, int(most)))}


def _gpus_per_node(site: Site, requested: dict[str, Any]) -> dict[str, str]:
    """Request the maximum number of GPUs of a node by default, to check all of them."""
    most = site.limits.gpus_per_node
    most = max((count for count in site.limits.gpus_allowed if count <= (most or count)), default=most)
    chosen = "gpus_per_node" in requested or site.defaults.gpus_per_node
    return {} if chosen or not most else {"gpus_per_node": str(most)}


def succeeded(run: Run) -> bool:
    """Return whether an ended job succeeded; its record may appear later than its state."""
    record = run.end_record()
    if record and not record.may_restart:
        return record.exit_code == 0
    return schedulers.query_state(run).name == "COMPLETED"


def wait_for_results(run: Run, are_complete: Callable[[], bool]) -> bool:
    """Wait until the shared file system shows all results of a job that succeeded.

    Args:
        run: The ended job.
        are_complete: Reads the results, and returns whether all are there.

    Returns:
        Whether all are there.
    """
    end = time.monotonic() + FILE_SYSTEM_DELAY_SECONDS * succeeded(run)
    while not (complete := are_complete()) and time.monotonic() < end:
        time.sleep(0.2)
    return complete


def pending_finding(reason: Explanation, timeout: float) -> Finding:
    """Return the finding about a job that did not start.

    Args:
        reason: Why it was pending.
        timeout: Seconds after which it was cancelled.
    """
    diagnosis = reason.diagnosis
    what = f"not started after {format_duration(timeout)} in the queue, and cancelled: {diagnosis.summary}"
    return error("job", what, diagnosis.fix)
