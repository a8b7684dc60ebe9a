"""Requests that a partition of Slurm cannot fulfil: which limit, its value, and what to request instead."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from hpcrun.nodelist import expand_nodelist, fold_hosts
from hpcrun.resources import Resources
from hpcrun.sites.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.schedulers.slurm_partitions import SlurmPartition
    from hpcrun.spec import JobSpec

QUERY_SECONDS = 2.0  # without an answer, the job is submitted without this check
_LIFTING = {"clusters", "cluster-constraint", "overcommit"}
"""Other options of sbatch with which these limits do not apply."""


@dataclass(frozen=True)
class Obstacle:
    """A reason why a partition does not run a job.

    Attributes:
        fault: What was requested, and what the partition has or allows.
        hint: What to request instead; empty if other requests do not help.
        is_certain: Whether the partition can never run the job; otherwise a QoS may lift the limit.
    """

    fault: str
    hint: str
    is_certain: bool


def requested_resources(spec: JobSpec) -> Resources | None:
    """Return what sbatch is asked for; None if options beyond `Resources` change that.

    Args:
        spec: The job.
    """
    omitted = {option.removeprefix("--").replace("-", "_") for option in spec.site.sbatch_omit}
    raw = {option.partition("=")[0].removeprefix("--") for option in (*spec.site.sbatch, *spec.resources.sbatch)}
    known = {field.name.replace("_", "-") for field in fields(Resources)} | _LIFTING
    if raw & known:
        return None
    gpu = spec.site.gpu.request
    if gpu == "none" or (gpu == "gpus" and not spec.resources.nodes):
        omitted.add("gpus_per_node")
    left_out: dict[str, Any] = {name: None for name in omitted if name in Resources.__dataclass_fields__}
    return replace(spec.resources, **left_out)


def find_obstacles(resources: Resources, partitions: Sequence[SlurmPartition]) -> list[Obstacle]:
    """Return why no partition of a job can run it; of several partitions, what the one with the fewest obstacles lacks.

    Args:
        resources: What the job requests.
        partitions: All partitions of Slurm.
    """
    names = resources.partition.split(",") if resources.partition else [one.name for one in partitions if one.default]
    found = [_find_obstacles(resources, one) for one in partitions if one.name in names]
    return min(found, key=len) if len(found) == len(names) and found else []


def _find_obstacles(resources: Resources, partition: SlurmPartition) -> list[Obstacle]:
    where, properties = f"partition {partition.name}", partition.properties
    hardware = Limits(
        max_nodes=_number(properties.get("TotalNodes")),
        cpus_per_node=partition.cpus or None,
        gpus_per_node=partition.gpus_per_node if partition.nodes else None,
        mem_per_node=f"{partition.memory}M" if partition.memory else None,
    )
    kind, types = resources.gpu_type, list(partition.gpus)
    # a QoS may lift these (sacctmgr(1), flags PartitionMaxNodes and PartitionTimeLimit)
    policy = Limits(max_nodes=_number(properties.get("MaxNodes")), max_time=partition.max_time or None)
    obstacles = [Obstacle(*fault, is_certain=True) for fault in hardware.find_violations(resources, where)]
    if kind and any(types) and kind not in types:
        fault = f"--gpus-per-node={resources.gpus_per_node}: the GPUs of {where} are {', '.join(types)}"
        obstacles.append(Obstacle(fault, f"give --gpus-per-node={types[0]}:{resources.gpus}", is_certain=True))
    if others := _foreign_nodes(resources.nodelist or "", partition):
        names = ",".join(group.names for group in partition.nodes)
        fault = f"--nodelist={resources.nodelist}: {where} does not have {others}, but {names}"
        obstacles.append(Obstacle(fault, "name nodes of that partition, or leave --nodelist out", is_certain=True))
    obstacles = obstacles or [Obstacle(*fault, is_certain=False) for fault in policy.find_violations(resources, where)]
    cores, most = resources.ranks * (resources.cpus_per_task or 1), _number(properties.get("TotalCPUs"))
    if most and cores > most and not obstacles:
        cores_per_rank = resources.cpus_per_task or 1
        requested = f"{resources.ranks} x {cores_per_rank} cores (ranks x --cpus-per-task)"
        fault = f"{requested} are more than {where} has: {most} cores"
        hint = (
            f"request at most {most // cores_per_rank} ranks"
            if cores_per_rank <= most
            else f"give --cpus-per-task={most} or less"
        )
        obstacles.append(Obstacle(fault, hint, is_certain=True))
    for option, key in (("account", "AllowAccounts"), ("qos", "AllowQos")):
        given, allowed = getattr(resources, option), properties.get(key, "ALL")
        if given and allowed != "ALL" and given.lower() not in allowed.lower().split(","):
            fault, first = f"--{option}={given}: {where} allows {allowed}", allowed.split(",")[0]
            obstacles.append(Obstacle(fault, f"give --{option}={first}, or another --partition", is_certain=False))
    if not partition.up:
        state = properties.get("State", "")
        obstacles.append(Obstacle(f"{where} is {state}", "", is_certain=False))
    return obstacles


def _foreign_nodes(nodelist: str, partition: SlurmPartition) -> str:
    """Return the named nodes that a partition does not have; nothing for a file of names."""
    if not (nodelist and partition.nodes) or "/" in nodelist:
        return ""
    own = {name for group in partition.nodes for name in expand_nodelist(group.names)}
    return fold_hosts(name for name in expand_nodelist(nodelist) if name not in own)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None
