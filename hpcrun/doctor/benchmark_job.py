"""The benchmark job of ``hpcrun site test``: the workload ``allreduce``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcrun import placement, submission, workload
from hpcrun.gpus import count_local_gpus
from hpcrun.request import Request
from hpcrun.resources import parse_time
from hpcrun.scheduler import find_scheduler
from hpcrun.sites import loader

if TYPE_CHECKING:
    from hpcrun.sites.model import Site
    from hpcrun.submission import Plan

ARGS = ("--max-size", "4M", "--nodes")
STALL_SECONDS = "120"
"""Stall timeout of the ranks, far below the time limit."""

MINUTES = 10
"""Default time limit: the scheduler starts a short job earlier than one with the site's default."""


def plan_benchmark(site: str | None, requested: dict[str, Any]) -> Plan:
    """Plan the benchmark of a site without writing or submitting anything.

    Args:
        site: The site's name or file; None to detect it.
        requested: Values by Slurm's option names, as typed.

    Raises:
        HpcrunError: The job cannot be submitted.
    """
    found = loader.load_selected_site(site)
    resources = {"job_name": "site-test", **_default_resources(found.site, requested), **requested}
    stall = (("HPCRUN_STALL_SECONDS", STALL_SECONDS),)
    request = Request("allreduce", ARGS, resources, site, stall, snapshot=False, max_requeue=0)
    return submission.plan(request, found, *workload.find_workload(request.target, request.args))


def _default_resources(site: Site, requested: dict[str, Any]) -> dict[str, Any]:
    """Return two nodes, as far as the limits allow, and a short time limit; on a local site two ranks."""
    counts = {"nodes", "ntasks", "ntasks_per_node", "gpus_per_node"} & set(requested)
    if not find_scheduler(site.scheduler).has_queue:
        return {} if counts or count_local_gpus() > 1 else {"ntasks": 2, "gpus_per_node": "0"}
    limits = placement.resolve_site(requested, site).limits
    one_rank = requested.get("ntasks") == 1 and "nodes" not in requested
    one = limits.max_nodes == 1 or site.launcher_name == "none" or one_rank
    nodes = max(1 if one else 2, limits.min_nodes or 1)
    limit = limits.max_time_for(requested.get("nodes") or nodes)
    minutes = min(parse_time(limit) / 60, MINUTES) if limit else MINUTES
    return {"nodes": nodes, "time": str(max(1, int(minutes)))}
