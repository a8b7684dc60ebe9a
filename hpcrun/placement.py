"""The nodes on which a job runs, and its resources there."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from hpcrun import launchers
from hpcrun.errors import HpcrunError
from hpcrun.gpus import count_local_gpus, gpus_per_allocated_node, requests_gpus
from hpcrun.job_levels import parse_resources, resolve_site, select_levels, warn_of_misspelled
from hpcrun.jobs import dependencies
from hpcrun.scheduler import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.request import Request
    from hpcrun.resources import Resources
    from hpcrun.scheduler import Scheduler
    from hpcrun.sites.model import ResolvedSite, Site
    from hpcrun.workload import Workload


@dataclass(frozen=True)
class ExecutionTarget:
    """The scheduler and nodes of a job.

    Attributes:
        scheduler: The scheduler that runs the job script.
        transport: How ranks start on nodes: by Slurm, over ssh, or on this host.
        nodes: The number of nodes; None where Slurm chooses them.
        ntasks: The number of task slots on these nodes; None if unknown.
        gpus_on_node: GPUs on each node; None if unknown.
    """

    scheduler: Scheduler
    transport: Literal["slurm", "ssh", "host"]
    nodes: int | None = None
    ntasks: int | None = None
    gpus_on_node: int | None = None


@dataclass(frozen=True)
class Placement:
    """Where a job runs, and what it gets there.

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


def place(request: Request, site: Site, program: Workload) -> Placement:
    """Find the nodes, resources and launcher of a job.

    Raises:
        HpcrunError: The job cannot run so at this site.
    """
    target = find_target(request, site)
    resources, warnings = plan_resources(request, site, program, target)
    resources = _resolve_dependency(resources, site, target)
    resolved = site.resolve(resources)
    return Placement(target, resolved, resources, select_launcher(resolved, target, resources), warnings)


def find_target(request: Request, site: Site) -> ExecutionTarget:
    """Find where a job runs: on the nodes of its hostfile, in this allocation, on this host, or through Slurm.

    Raises:
        HpcrunError: The hostfile, or the scheduler's environment, is invalid.
    """
    scheduler = REGISTRY.load(site.scheduler)
    if not (request.hostfile or request.run_now):
        if scheduler.has_queue:
            return ExecutionTarget(scheduler, scheduler.transport)
        return ExecutionTarget(scheduler, "host", 1, None, count_local_gpus())

    from hpcrun.allocation import Allocation

    local = REGISTRY.load("local")
    if request.hostfile:
        allocation = Allocation.from_hostfile(request.hostfile)
    else:
        allocation = Allocation.from_environment(os.environ)
    nodes = len(allocation.hosts)
    if allocation.source == "slurm" and scheduler.uses_slurm:
        return ExecutionTarget(local, "slurm", nodes, allocation.ntasks, gpus_per_allocated_node(os.environ))
    # as many tasks as nodes: the hostfile may have one line per host, without slots
    slots = allocation.ntasks if allocation.ntasks > nodes else None
    names = {host.name for host in allocation.hosts}
    if names <= {os.uname().nodename, "localhost"}:
        return ExecutionTarget(local, "host", nodes, slots, count_local_gpus())
    # without a number in the site file, this host's GPUs count for all hosts if it is one of them
    gpus = resolve_site(request.resources, site).limits.gpus_per_node
    if gpus is None and os.uname().nodename in names:
        gpus = count_local_gpus()
    return ExecutionTarget(local, "ssh", nodes, slots, gpus)


def plan_resources(
    request: Request, site: Site, program: Workload, target: ExecutionTarget
) -> tuple[Resources, tuple[str, ...]]:
    """Merge the requested resources with the defaults of partition, site and workload, and fit them to the target.

    Returns:
        The complete resources, and warnings about them.

    Raises:
        HpcrunError: sbatch would not accept a value, the numbers contradict each other, or no partition allows them.
    """
    selected = select_levels(parse_resources(request.resources), site, program.resources)
    if not site.choose_partition or selected.partition or not target.scheduler.has_queue:
        return _plan_in_partition(request, site, program, target, selected)
    faults = []
    for name in site.partitions:
        in_partition = replace(request, resources={**request.resources, "partition": name})
        selected = select_levels(parse_resources(in_partition.resources), site, program.resources)
        resources, warnings = _plan_in_partition(in_partition, site, program, target, selected)
        violations = site.find_violations(resources)
        if not violations:
            return resources, warnings
        faults += [fault for fault, _ in violations]
    what = f"site {site.name}: no partition allows this job: {'; '.join(dict.fromkeys(faults))}"
    raise HpcrunError(what, hint=f"request less, or choose one with --partition; see hpcrun site show {site.name}")


def select_launcher(site: Site, target: ExecutionTarget, resources: Resources) -> str:
    """Return the name of the launcher: the site's on Slurm, else one that reaches the target's nodes.

    Raises:
        HpcrunError: The site starts one process only, and there are several ranks.
    """
    if target.transport == "slurm":
        if launchers.site_launcher(site).starts_one_process and resources.ranks > 1:
            hint = 'ask for one rank, or set launcher = "srun" in the site file'
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
    """Replace names of runs in ``--dependency`` by job ids."""
    if not target.scheduler.uses_slurm or not resources.dependency:
        return resources
    conf = site.slurm_conf or os.environ.get("SLURM_CONF")
    return replace(resources, dependency=dependencies.resolve_dependency(resources.dependency, conf))


def _plan_in_partition(
    request: Request, site: Site, program: Workload, target: ExecutionTarget, selected: Resources
) -> tuple[Resources, tuple[str, ...]]:
    requested = parse_resources(request.resources)
    resolved = site.resolve(selected)
    merged = requested.with_defaults(resolved.defaults).with_defaults(program.resources)
    merged = replace(merged, partition=selected.partition, qos=selected.qos)
    gpus_on_node = resolved.limits.gpus_per_node
    warnings = []
    if target.scheduler.has_queue and site.partitions and not selected.partition:
        known = ", ".join(site.partitions)
        warnings.append(f"no partition was chosen, so no partition's limits are checked (--partition: {known})")
    if not target.scheduler.has_queue:
        merged, gpus_on_node = _fit_to_target(target, requested, merged), target.gpus_on_node
        warnings += _warn_of_ignored_options(requested, target)
        warnings += _warn_of_ignored_restarts(request)
        if gpus_on_node is not None and merged.gpus > gpus_on_node and not request.no_gpu:
            _require_gpus(requested, gpus_on_node)
            merged, gpus_on_node = _without_gpus(merged), 0
    warnings += _warn_of_missing_units(requested)
    warnings += warn_of_misspelled(requested, site) if target.scheduler.has_queue else []
    if request.no_gpu:
        merged, gpus_on_node = _without_gpus(merged), 0
    if launchers.site_launcher(resolved).starts_one_process and target.transport == "slurm" and not merged.ntasks:
        merged = replace(merged, ntasks_per_node=merged.ntasks_per_node or 1)  # one process gets all GPUs
    resources, warning = merged.with_layout(gpus_on_node)
    warnings += [warning] if warning else []
    declined_gpus = request.no_gpu or requested.gpus_per_node is not None
    if not (resources.gpus or declined_gpus or warning) and program.trains_model:
        warnings += _warn_of_cpu_training(program, target, resources, resolved, gpus_on_node)
    if target.scheduler.has_queue and resources.gpus:
        resources, cpu_warnings = _give_cores_to_gpus(resources, resolved)
        warnings += cpu_warnings
    return resources, tuple(warnings)


def _warn_of_missing_units(requested: Resources) -> Iterator[str]:
    """Warn of a time limit or a memory size that Slurm reads in a much smaller unit than was probably meant."""
    sizes = {"--mem": requested.mem, "--mem-per-gpu": requested.mem_per_gpu}
    if not (requested.time or any(sizes.values())):
        return
    from hpcrun import resource_hints

    warnings = [resource_hints.explain_small_memory(option, size) for option, size in sizes.items()]
    yield from filter(None, [resource_hints.explain_short_time(requested.time), *warnings])


def _give_cores_to_gpus(resources: Resources, site: Site) -> tuple[Resources, list[str]]:
    """Give each rank the cores of its GPUs, and warn of GPUs that are charged but idle."""
    idle = (site.limits.gpus_per_node or 0) - resources.gpus
    if site.gpu.cpus and resources.cpus_per_task is None:
        resources = replace(
            resources, cpus_per_task=max(1, site.gpu.cpus * resources.gpus // (resources.ntasks_per_node or 1))
        )
    if not site.limits.exclusive or idle <= 0:
        return resources, []
    advice = f"--gpus-per-node={site.limits.gpus_per_node} uses all"
    return resources, [f"jobs are charged for whole nodes here: {idle} GPUs of each node stay idle ({advice})"]


def _require_gpus(requested: Resources, gpus_on_node: int) -> None:
    """Refuse requested GPUs that nodes do not have."""
    if requested.gpus > gpus_on_node:
        available = f"{gpus_on_node} GPUs" if gpus_on_node else "no GPUs"
        hint = "--no-gpu runs the ranks on the CPU" + (
            f"; --gpus-per-node={gpus_on_node} uses all" * (gpus_on_node > 0)
        )
        raise HpcrunError(f"--gpus-per-node={requested.gpus_per_node}: a node of this site has {available}", hint=hint)


def _warn_of_cpu_training(
    program: Workload, target: ExecutionTarget, resources: Resources, site: Site, gpus_on_node: int | None
) -> Iterator[str]:
    """Warn if a job trains on CPUs although the user did not request that."""
    if target.scheduler.uses_slurm and requests_gpus((*site.sbatch, *resources.sbatch)):
        return
    ranks = f"{resources.ntasks_per_node} a node" if resources.ntasks_per_node else str(resources.ranks)
    what, quiet = f"{program.name} runs on CPU cores (ranks: {ranks})", "--no-gpu silences this"
    if gpus_on_node is None:
        why = f"no GPUs were requested, and site {site.name} does not set the number of GPUs per node"
        yield f"{why}: {what}; --gpus-per-node=N requests GPUs, {quiet}"
    else:
        place = f"partition {resources.partition} of site {site.name}" if resources.partition else f"site {site.name}"
        where = "this host" if target.transport == "host" else place
        yield f"{where} has {gpus_on_node or 'no'} GPUs: {what}; {quiet}"


def _without_gpus(merged: Resources) -> Resources:
    """Replace GPUs by the same number of CPU ranks."""
    ranks = merged.ntasks_per_node or (None if merged.ntasks else merged.gpus or None)
    return replace(merged, gpus_per_node=None, ntasks_per_node=ranks)


def _warn_of_ignored_options(requested: Resources, target: ExecutionTarget) -> list[str]:
    """Warn of options that have no effect without a scheduler."""
    effective = {"nodes", "ntasks", "ntasks_per_node", "gpus_per_node", "job_name", "time"}
    effective |= {"cpus_per_task"} if target.transport == "slurm" else set()
    ignored = [f"--{name.replace('_', '-')}" for name in requested.explicit() if name not in effective]
    return [f"no scheduler runs this job: {', '.join(ignored)} has no effect"] if ignored else []


def _warn_of_ignored_restarts(request: Request) -> Iterator[str]:
    if request.max_requeue:
        yield "no scheduler requeues this job: --max-requeue has no effect"
    if request.memory_retries:
        yield "no scheduler limits the memory of this job: --memory-retries has no effect"


def _fit_to_target(target: ExecutionTarget, requested: Resources, merged: Resources) -> Resources:
    """Use all nodes and tasks of the target, unless the user requested others."""
    if target.nodes and requested.nodes and requested.nodes > target.nodes:
        more = {"ssh": ", or list more hosts in --hostfile", "host": "; hpcrun run --hostfile=FILE runs on other hosts"}
        what = f"--nodes={requested.nodes} is more than the {target.nodes} available"
        raise HpcrunError(what, hint=f"give --nodes={target.nodes}{more.get(target.transport, '')}")
    has_ranks = requested.nodes or merged.ntasks or merged.ntasks_per_node or merged.gpus or target.gpus_on_node
    return replace(merged, nodes=requested.nodes or target.nodes, ntasks=merged.ntasks if has_ranks else target.ntasks)
