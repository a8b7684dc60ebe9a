"""Selection of the scheduler and nodes on which a job runs, and of its resources and launcher."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from hpcrun import launchers, node_launch
from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen
from hpcrun.gpus import count_local_gpus, gpus_per_allocated_node
from hpcrun.job_levels import (
    parse_resources,
    resolve_site,
    select_levels,
    warn_of_missing_units,
    warn_of_misspelled_names,
    warn_of_unsent_mail,
)
from hpcrun.jobs import dependencies
from hpcrun.placement_warnings import (
    warn_of_cpu_training,
    warn_of_ignored_memory,
    warn_of_ignored_options,
    warn_of_ignored_restarts,
    warn_of_uncounted_gpus,
)
from hpcrun.scheduler import REGISTRY
from hpcrun.sites.refusals import find_violations

if TYPE_CHECKING:
    from hpcrun.request import Request
    from hpcrun.resources import Resources
    from hpcrun.scheduler import Scheduler
    from hpcrun.sites.site_model import ResolvedSite, Site
    from hpcrun.workload import Workload


@frozen
class ExecutionTarget:
    """The scheduler and nodes of a job.

    Attributes:
        scheduler: The scheduler that runs the job script.
        transport: How ranks start on nodes: by Slurm (slurm), over ssh (ssh), or on this host only (host).
        nodes: The number of nodes; None if Slurm chooses the nodes.
        ntasks: The number of tasks that these nodes can run; None if unknown.
        gpus_on_node: The number of GPUs on each node; None if unknown.
    """

    scheduler: Scheduler
    transport: Literal["slurm", "ssh", "host"]
    nodes: int | None = None
    ntasks: int | None = None
    gpus_on_node: int | None = None


@frozen
class Placement:
    """The nodes, site settings, resources and launcher of a job.

    Attributes:
        target: The scheduler and nodes.
        site: The site, resolved for the job.
        resources: The complete resources.
        launcher: The name of the launcher that starts the ranks.
        warnings: Messages about the resources.
    """

    target: ExecutionTarget
    site: ResolvedSite
    resources: Resources
    launcher: str
    warnings: tuple[str, ...]


def resolve_placement(request: Request, site: Site, program: Workload) -> Placement:
    """Find the nodes, resources and launcher of a job.

    Raises:
        HpcrunError: The job cannot run on this site with these options.
    """
    target = find_target(request, site)
    resources, warnings = plan_resources(request, site, program, target)
    resources = _resolve_dependency(resources, site, target)
    resolved_site = site.resolve(resources)
    launched_resources = node_launch.launched_resources(resources, request.launch)
    return Placement(
        target, resolved_site, resources, select_launcher(resolved_site, target, launched_resources), warnings
    )


def find_target(request: Request, site: Site) -> ExecutionTarget:
    """Return the scheduler and nodes of a job: the hosts of a hostfile, the current allocation, this host, or a queue.

    Raises:
        HpcrunError: The hostfile, or the scheduler's environment, is invalid.
    """
    scheduler = REGISTRY.load(site.scheduler)
    if not (request.hostfile or request.run_now):
        if scheduler.has_queue:
            return ExecutionTarget(scheduler, scheduler.transport)
        return ExecutionTarget(scheduler, "host", 1, None, count_local_gpus())

    from hpcrun.allocation import Allocation

    local_scheduler = REGISTRY.load("local")
    if request.hostfile:
        allocation = Allocation.from_hostfile(request.hostfile)
    else:
        allocation = Allocation.from_environment(os.environ)
    nodes = len(allocation.hosts)
    if allocation.source == "slurm" and scheduler.uses_slurm:
        return ExecutionTarget(local_scheduler, "slurm", nodes, allocation.ntasks, gpus_per_allocated_node(os.environ))
    # a hostfile with one task per node probably sets no slots
    task_slots = allocation.ntasks if allocation.ntasks > nodes else None
    host_names = {host.name for host in allocation.hosts}
    if host_names <= {os.uname().nodename, "localhost"}:
        return ExecutionTarget(local_scheduler, "host", nodes, task_slots, count_local_gpus())
    # if the site file does not set the number, assume that all nodes have as many GPUs as this host
    gpus_on_node = resolve_site(request.resources, site).limits.gpus_per_node
    if gpus_on_node is None and os.uname().nodename in host_names:
        gpus_on_node = count_local_gpus()
    return ExecutionTarget(local_scheduler, "ssh", nodes, task_slots, gpus_on_node)


def plan_resources(
    request: Request, site: Site, program: Workload, target: ExecutionTarget
) -> tuple[Resources, tuple[str, ...]]:
    """Merge the requested resources with defaults of partition, site and workload, and adapt them to the target.

    Returns:
        The complete resources, and warnings about them.

    Raises:
        HpcrunError: sbatch would not accept a value, the numbers contradict each other, or no partition allows these
            resources.
    """
    selected_levels = select_levels(parse_resources(request.resources), site, program.resources)
    if not site.choose_partition or selected_levels.partition or not target.scheduler.has_queue:
        return _plan_in_partition(request, site, program, target, selected_levels)
    faults = []
    for name in site.partitions:
        partition_request = replace(request, resources={**request.resources, "partition": name})
        selected_levels = select_levels(parse_resources(partition_request.resources), site, program.resources)
        resources, warnings = _plan_in_partition(partition_request, site, program, target, selected_levels)
        violations = find_violations(site, resources)
        if not violations:
            return resources, warnings
        faults += [fault for fault, _ in violations]
    message = f"site {site.name}: no partition allows this job: {'; '.join(dict.fromkeys(faults))}"
    raise HpcrunError(message, hint=f"request less, or choose one with --partition; see hpcrun site show {site.name}")


def select_launcher(site: Site, target: ExecutionTarget, resources: Resources) -> str:
    """Return the name of the launcher: the site's launcher in Slurm jobs, else one that can reach the target's nodes.

    Raises:
        HpcrunError: The site's launcher starts only one process, and there are several ranks.
    """
    if target.transport == "slurm":
        if launchers.site_launcher(site).starts_one_process and resources.ranks > 1:
            hint = 'request one rank, or set launcher = "srun" in the site file'
            raise HpcrunError(
                f"{resources.ranks} ranks, but site {site.name} has launcher = {site.launcher_name}", hint=hint
            )
        return site.launcher_name
    if resources.ranks == 1 and target.transport == "host":
        return "none"
    if not site.custom_launcher and launchers.load_launcher(site.launcher_name).starts_over_ssh:
        return site.launcher_name
    return launchers.mpi_launcher(site.mpi.library)


def _resolve_dependency(resources: Resources, site: Site, target: ExecutionTarget) -> Resources:
    """Replace the names of runs in ``--dependency`` by job ids."""
    if not target.scheduler.uses_slurm or not resources.dependency:
        return resources
    conf = site.slurm_conf or os.environ.get("SLURM_CONF")
    return replace(resources, dependency=dependencies.resolve_dependency(resources.dependency, conf))


def _plan_in_partition(
    request: Request, site: Site, program: Workload, target: ExecutionTarget, selected_levels: Resources
) -> tuple[Resources, tuple[str, ...]]:
    requested_resources = parse_resources(request.resources)
    resolved_site = site.resolve(selected_levels)
    merged_resources = requested_resources.with_defaults(resolved_site.defaults).with_defaults(program.resources)
    merged_resources = replace(merged_resources, partition=selected_levels.partition, qos=selected_levels.qos)
    gpus_on_node = resolved_site.limits.gpus_per_node
    warnings = []
    if target.scheduler.has_queue and site.partitions and not selected_levels.partition:
        partition_names = ", ".join(site.partitions)
        warnings.append(
            f"no partition was chosen, so no partition's limits are checked (--partition: {partition_names})"
        )
    if not target.scheduler.has_queue:
        merged_resources, gpus_on_node = (
            _fit_to_target(target, requested_resources, merged_resources),
            target.gpus_on_node,
        )
        warnings += warn_of_ignored_options(requested_resources, target)
        warnings += warn_of_ignored_restarts(request)
        if gpus_on_node is not None and merged_resources.gpus > gpus_on_node and not request.no_gpu:
            _require_gpus(requested_resources, gpus_on_node)
            merged_resources, gpus_on_node = _replace_gpus(merged_resources), 0
    warnings += warn_of_missing_units(requested_resources)
    if target.scheduler.has_queue:
        warnings += [*warn_of_misspelled_names(requested_resources, site), *warn_of_unsent_mail(merged_resources)]
    if request.no_gpu:
        merged_resources, gpus_on_node = _replace_gpus(merged_resources), 0
    if (
        launchers.site_launcher(resolved_site).starts_one_process
        and target.transport == "slurm"
        and not merged_resources.ntasks
    ):
        merged_resources = replace(
            merged_resources, ntasks_per_node=merged_resources.ntasks_per_node or 1
        )  # one process gets all GPUs
    resources, warning = merged_resources.with_layout(gpus_on_node)
    warnings += [warning] if warning else []
    if target.scheduler.has_queue:
        warnings += warn_of_ignored_memory(requested_resources, resources, resolved_site)
        warnings += warn_of_uncounted_gpus(requested_resources, resources)
    declines_gpus = request.no_gpu or requested_resources.gpus_per_node is not None
    if not (resources.gpus or declines_gpus or warning) and program.trains_model:
        warnings += warn_of_cpu_training(program, target, resources, resolved_site, gpus_on_node)
    if target.scheduler.has_queue and resources.gpus:
        resources, cpu_warnings = _set_cores_per_gpu(resources, resolved_site)
        warnings += cpu_warnings
    return resources, tuple(warnings)


def _set_cores_per_gpu(resources: Resources, site: Site) -> tuple[Resources, list[str]]:
    """Set --cpus-per-task to the number of cores for a rank's GPUs, and warn of GPUs that are charged but idle."""
    idle_gpus = (site.limits.gpus_per_node or 0) - resources.gpus
    if site.gpu.cpus and resources.cpus_per_task is None:
        resources = replace(
            resources, cpus_per_task=max(1, site.gpu.cpus * resources.gpus // (resources.ntasks_per_node or 1))
        )
    if not site.limits.exclusive or idle_gpus <= 0:
        return resources, []
    advice = f"--gpus-per-node={site.limits.gpus_per_node} uses all"
    return resources, [f"jobs are charged for whole nodes here: {idle_gpus} GPUs of each node stay idle ({advice})"]


def _require_gpus(requested_resources: Resources, gpus_on_node: int) -> None:
    """Refuse a request for more GPUs than the nodes have."""
    if requested_resources.gpus > gpus_on_node:
        available_text = f"{gpus_on_node} GPUs" if gpus_on_node else "no GPUs"
        hint = "--no-gpu runs the ranks on the CPU" + (
            f"; --gpus-per-node={gpus_on_node} uses all" * (gpus_on_node > 0)
        )
        raise HpcrunError(
            f"--gpus-per-node={requested_resources.gpus_per_node}: a node of this site has {available_text}", hint=hint
        )


def _replace_gpus(resources: Resources) -> Resources:
    """Return resources without GPUs, with one rank on CPU cores for each GPU."""
    ranks_per_node = resources.ntasks_per_node or (None if resources.ntasks else resources.gpus or None)
    return replace(resources, gpus_per_node=None, ntasks_per_node=ranks_per_node)


def _fit_to_target(target: ExecutionTarget, requested_resources: Resources, merged_resources: Resources) -> Resources:
    """Return resources that use all nodes and tasks of the target, unless the user sets these numbers."""
    if target.nodes and requested_resources.nodes and requested_resources.nodes > target.nodes:
        alternatives = {
            "ssh": ", or list more hosts in --hostfile",
            "host": "; hpcrun run --hostfile=FILE runs on other hosts",
        }
        message = f"--nodes={requested_resources.nodes} is more than the {target.nodes} available"
        raise HpcrunError(message, hint=f"give --nodes={target.nodes}{alternatives.get(target.transport, '')}")
    sets_ranks = (
        requested_resources.nodes
        or merged_resources.ntasks
        or merged_resources.ntasks_per_node
        or merged_resources.gpus
        or target.gpus_on_node
    )
    return replace(
        merged_resources,
        nodes=requested_resources.nodes or target.nodes,
        ntasks=merged_resources.ntasks if sets_ranks else target.ntasks,
    )
