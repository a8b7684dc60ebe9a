"""Where a job's ranks go, and what they get there."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from hpcrun.errors import HpcrunError
from hpcrun.gpus import count_local_gpus, gpus_per_allocated_node, requests_gpus
from hpcrun.resources import FieldError, Resources

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.request import Request
    from hpcrun.sites.model import Site
    from hpcrun.workload import Workload


@dataclass(frozen=True)
class Place:
    """Where the ranks go: what runs the script, how nodes are reached, and what is known of them."""

    scheduler: Literal["slurm", "local"]
    reach: Literal["slurm", "ssh", "host"]
    nodes: int | None = None
    ntasks: int | None = None
    gpus_on_node: int | None = None


def find(request: Request, site: Site) -> Place:
    """Decide where a request's ranks go, from its hostfile, or from the allocation or host that this process stands in.

    Raises:
        HpcrunError: The hostfile, or what the scheduler says in the environment, is nonsense.
    """
    if not (request.hostfile or request.now) and site.scheduler == "slurm":
        return Place("slurm", "slurm")
    if not (request.hostfile or request.now):
        return Place("local", "host", 1, None, count_local_gpus())

    from hpcrun.allocation import Allocation

    if request.hostfile:
        allocation = Allocation.from_hostfile(request.hostfile)
    else:
        allocation = Allocation.from_environment(os.environ)
    nodes = len(allocation.hosts)
    if allocation.source == "slurm" and site.scheduler == "slurm":
        return Place("local", "slurm", nodes, allocation.ntasks, gpus_per_allocated_node(os.environ))
    slots = allocation.ntasks if allocation.ntasks > nodes else None  # else the file has one line a host, and no counts
    names = {host.name for host in allocation.hosts}
    if names <= {os.uname().nodename, "localhost"}:
        return Place("local", "host", nodes, slots, count_local_gpus())
    # the hosts' GPUs are the site's to know; without it, this host stands for the others if it is one of them
    gpus = site.at(request.resources.get("partition"), request.resources.get("qos")).limits.gpus_per_node
    if gpus is None and os.uname().nodename in names:
        gpus = count_local_gpus()
    return Place("local", "ssh", nodes, slots, gpus)


def resources(request: Request, site: Site, program: Workload, place: Place) -> tuple[Resources, tuple[str, ...]]:
    """Decide what a job gets: workload's, site's and partition's defaults below what was asked for, then what is there.

    Returns:
        The complete resources, and what people should know of them.

    Raises:
        HpcrunError: A value that sbatch would not take, or numbers that contradict each other.
    """
    asked = _asked(request.resources)
    name, qos = _chosen(asked, site, program.resources)
    here = site.at(name, qos)
    wanted = replace(asked.over(here.defaults).over(program.resources), partition=name, qos=qos)
    gpus_on_node = here.limits.gpus_per_node
    warnings = []
    if place.scheduler == "slurm" and site.partitions and not name:
        known = ", ".join(site.partitions)
        warnings.append(f"no partition was chosen, so no partition's limits are checked (--partition: {known})")
    if place.scheduler == "local":
        wanted, gpus_on_node = _on(place, asked, wanted), place.gpus_on_node
        warnings += _without_effect(asked, place)
        if request.max_requeue:
            warnings.append("no scheduler starts it again: --max-requeue has no effect")
        if gpus_on_node is not None and wanted.gpus > gpus_on_node and not request.no_gpu:
            _refuse_gpus(asked, gpus_on_node)
            wanted, gpus_on_node = _without_gpus(wanted), 0
    if request.no_gpu:
        wanted, gpus_on_node = _without_gpus(wanted), 0
    if here.launcher_name == "none" and place.reach == "slurm" and not wanted.ntasks:
        wanted = replace(wanted, ntasks_per_node=wanted.ntasks_per_node or 1)  # one process has all GPUs
    laid, warning = wanted.laid_out(gpus_on_node)
    warnings += [warning] if warning else []
    asked_for_none = request.no_gpu or asked.gpus_per_node is not None
    if program.trains and not (laid.gpus or asked_for_none or warning):
        warnings += _on_cpus(program, place, laid, here, gpus_on_node)
    if place.scheduler == "slurm" and laid.gpus:
        laid, more = _with_gpus(laid, here)
        warnings += more
    return laid, tuple(warnings)


def site_of(options: dict[str, Any], site: Site) -> Site:
    """Return the site as a job finds it that has such options, of which its partition and QoS matter.

    Raises:
        HpcrunError: There is no such partition.
    """
    asked = _asked({name: options[name] for name in ("partition", "qos") if options.get(name)})
    return site.at(*_chosen(asked, site, Resources()))


def _chosen(asked: Resources, site: Site, program: Resources) -> tuple[str | None, str | None]:
    """Return a job's partition, where there is one only that one, and its QoS."""
    name = asked.over(site.defaults).over(program).partition
    if len(site.partitions) == 1:
        name = name or next(iter(site.partitions))
    return name, asked.over(site.at(name, None).defaults).over(program).qos


def _with_gpus(laid: Resources, here: Site) -> tuple[Resources, list[str]]:
    """Give ranks the cores that come with their GPUs, and warn of GPUs that are paid for and idle."""
    idle = (here.limits.gpus_per_node or 0) - laid.gpus
    if here.gpu.cpus and laid.cpus_per_task is None:
        laid = replace(laid, cpus_per_task=max(1, here.gpu.cpus * laid.gpus // (laid.ntasks_per_node or 1)))
    if not here.limits.exclusive or idle <= 0:
        return laid, []
    advice = f"--gpus-per-node={here.limits.gpus_per_node} uses all"
    return laid, [f"jobs get whole nodes here, and pay for them: {idle} GPUs of each stay idle ({advice})"]


def _refuse_gpus(asked: Resources, gpus_on_node: int) -> None:
    """Refuse GPUs that somebody asked for in vain."""
    if asked.gpus > gpus_on_node:
        here = f"{gpus_on_node} GPUs" if gpus_on_node else "no GPUs"
        hint = "--no-gpu runs the ranks on the CPU" + (
            f"; --gpus-per-node={gpus_on_node} uses all" * (gpus_on_node > 0)
        )
        raise HpcrunError(f"--gpus-per-node={asked.gpus_per_node}: a node has {here} here", hint=hint)


def _on_cpus(program: Workload, place: Place, laid: Resources, here: Site, gpus_on_node: int | None) -> Iterator[str]:
    """Warn of a training without GPUs that nobody asked for."""
    if place.scheduler == "slurm" and requests_gpus((*here.sbatch, *laid.sbatch)):
        return
    ranks = f"{laid.ntasks_per_node} a node" if laid.ntasks_per_node else str(laid.ranks)
    what, quiet = f"{program.name} trains on CPU cores (ranks: {ranks})", "--no-gpu silences this"
    if gpus_on_node is None:
        why = f"no GPUs were asked for, and site {here.name} does not say how many its nodes have"
        yield f"{why}: {what}; --gpus-per-node=N asks for some, {quiet}"
    else:
        where = "this host" if place.reach == "host" else f"site {here.name}"
        yield f"{where} has {gpus_on_node or 'no'} GPUs: {what}; {quiet}"


def _asked(options: dict[str, Any]) -> Resources:
    known = [one.name for one in fields(Resources)]
    for name in options:
        if name not in known:
            raise HpcrunError(f"there is no option {name!r}", hint=f"one of {', '.join(known)}")
    try:
        return Resources(**options)
    except FieldError as error:
        option = f"--{error.field.replace('_', '-')}={error.value}"
        raise HpcrunError(f"{option}: {error.reason}", hint="see hpcrun submit --help") from None


def _without_gpus(wanted: Resources) -> Resources:
    """Ask for as many CPU ranks as there would have been GPUs."""
    ranks = wanted.ntasks_per_node or (None if wanted.ntasks else wanted.gpus or None)
    return replace(wanted, gpus_per_node=None, ntasks_per_node=ranks)


def _without_effect(asked: Resources, place: Place) -> list[str]:
    """Warn of options that only a scheduler could heed."""
    heeded = {"nodes", "ntasks", "ntasks_per_node", "gpus_per_node", "job_name", "time"}
    heeded |= {"cpus_per_task"} if place.reach == "slurm" else set()
    ignored = [f"--{name.replace('_', '-')}" for name in asked.said() if name not in heeded]
    return [f"no scheduler places these ranks: {', '.join(ignored)} has no effect"] if ignored else []


def _on(place: Place, asked: Resources, wanted: Resources) -> Resources:
    """Use all nodes of the place, and its tasks, where the person did not ask for others."""
    if place.nodes and asked.nodes and asked.nodes > place.nodes:
        raise HpcrunError(
            f"--nodes={asked.nodes} is more than the {place.nodes} here",
            hint="ask for fewer nodes, or name more hosts with --hostfile",
        )
    said_ranks = asked.nodes or wanted.ntasks or wanted.ntasks_per_node or wanted.gpus or place.gpus_on_node
    return replace(wanted, nodes=asked.nodes or place.nodes, ntasks=wanted.ntasks if said_ranks else place.ntasks)
