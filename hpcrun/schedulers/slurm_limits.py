"""Detection of requests that a partition of Slurm cannot fulfil, with the limit and a hint."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from hpcrun.errors import pluralize
from hpcrun.frozen import frozen
from hpcrun.nodelist import expand_nodelist, fold_hosts
from hpcrun.resources import Resources
from hpcrun.sites.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.schedulers.slurm_partitions import SlurmPartition
    from hpcrun.spec import JobSpec

QUERY_TIMEOUT_SECONDS = 2.0  # if Slurm does not answer, the job is submitted without this check
_LIMIT_LIFTING_OPTIONS = {"clusters", "cluster-constraint", "overcommit"}
"""sbatch options that are not fields of `Resources`, and with which a partition's limits may not apply."""


@frozen
class Obstacle:
    """A reason why a partition, QoS or account does not run a job.

    Attributes:
        fault: A message with the requested value and the limit.
        hint: The value to request instead; empty if no change of the request helps.
        is_certain: Whether the partition can never run the job; if not, a QoS may lift the limit.
    """

    fault: str
    hint: str
    is_certain: bool


def requested_resources(spec: JobSpec) -> Resources | None:
    """Return the resources that the job script requests from sbatch; None if raw sbatch options may change them.

    Args:
        spec: The job.
    """
    omitted_names = {option.removeprefix("--").replace("-", "_") for option in spec.site.sbatch_omit}
    raw_names = {option.partition("=")[0].removeprefix("--") for option in (*spec.site.sbatch, *spec.resources.sbatch)}
    checked_names = {field.name.replace("_", "-") for field in fields(Resources)} | _LIMIT_LIFTING_OPTIONS
    if raw_names & checked_names:
        return None
    gpu_request = spec.site.gpu.request
    if gpu_request == "none" or (gpu_request == "gpus" and not spec.resources.nodes):
        omitted_names.add("gpus_per_node")
    removed_values: dict[str, Any] = {name: None for name in omitted_names if name in Resources.__dataclass_fields__}
    return replace(spec.resources, **removed_values)


def find_obstacles(resources: Resources, partitions: Sequence[SlurmPartition]) -> list[Obstacle]:
    """Return the obstacles of the requested partition with the fewest obstacles; empty if a partition can run the job.

    Args:
        resources: The resources that the job requests.
        partitions: All partitions of the Slurm cluster.
    """
    partition_names = (
        resources.partition.split(",") if resources.partition else [one.name for one in partitions if one.default]
    )
    obstacles_by_partition = [_find_obstacles(resources, one) for one in partitions if one.name in partition_names]
    return (
        min(obstacles_by_partition, key=len)
        if len(obstacles_by_partition) == len(partition_names) and obstacles_by_partition
        else []
    )


def _find_obstacles(resources: Resources, partition: SlurmPartition) -> list[Obstacle]:
    partition_text, properties = f"partition {partition.name}", partition.properties
    hardware_limits = Limits(
        max_nodes=_parse_number(properties.get("TotalNodes")),
        cpus_per_node=partition.cpus or None,
        gpus_per_node=partition.gpus_per_node if partition.nodes else None,
        mem_per_node=f"{partition.memory}M" if partition.memory else None,
    )
    gpu_type, gpu_types = resources.gpu_type, list(partition.gpus)
    # a QoS may lift these limits (sacctmgr(1), flags PartitionMaxNodes and PartitionTimeLimit)
    policy_limits = Limits(max_nodes=_parse_number(properties.get("MaxNodes")), max_time=partition.max_time or None)
    obstacles = [
        Obstacle(*fault, is_certain=True) for fault in hardware_limits.find_violations(resources, partition_text)
    ]
    if gpu_type and any(gpu_types) and gpu_type not in gpu_types:
        fault = f"--gpus-per-node={resources.gpus_per_node}: the GPUs of {partition_text} are {', '.join(gpu_types)}"
        obstacles.append(Obstacle(fault, f"give --gpus-per-node={gpu_types[0]}:{resources.gpus}", is_certain=True))
    if others := _foreign_nodes(resources.nodelist or "", partition):
        names = ",".join(group.names for group in partition.nodes)
        fault = f"--nodelist={resources.nodelist}: {partition_text} does not have {others}, but {names}"
        obstacles.append(Obstacle(fault, "name nodes of that partition, or leave --nodelist out", is_certain=True))
    obstacles += _find_exclude_obstacles(resources, properties.get("Nodes", ""), partition_text)
    obstacles = obstacles or [
        Obstacle(*fault, is_certain=False) for fault in policy_limits.find_violations(resources, partition_text)
    ]
    cores, max_cores = resources.ranks * (resources.cpus_per_task or 1), _parse_number(properties.get("TotalCPUs"))
    if max_cores and cores > max_cores and not obstacles:
        cores_per_rank = resources.cpus_per_task or 1
        request_text = f"{resources.ranks} x {cores_per_rank} cores (ranks x --cpus-per-task)"
        fault = f"{request_text} are more than {partition_text} has: {max_cores} cores"
        hint = (
            f"request at most {max_cores // cores_per_rank} ranks"
            if cores_per_rank <= max_cores
            else f"give --cpus-per-task={max_cores} or less"
        )
        obstacles.append(Obstacle(fault, hint, is_certain=True))
    for option, key in (("account", "AllowAccounts"), ("qos", "AllowQos")):
        requested_name, allowed_names = getattr(resources, option), properties.get(key, "ALL")
        if requested_name and allowed_names != "ALL" and requested_name.lower() not in allowed_names.lower().split(","):
            fault, first_allowed = (
                f"--{option}={requested_name}: {partition_text} allows {allowed_names}",
                allowed_names.split(",")[0],
            )
            obstacles.append(
                Obstacle(fault, f"give --{option}={first_allowed}, or another --partition", is_certain=False)
            )
    if not partition.up:
        state = properties.get("State", "")
        obstacles.append(Obstacle(f"{partition_text} is {state}", "", is_certain=False))
    return obstacles


def _foreign_nodes(nodelist: str, partition: SlurmPartition) -> str:
    """Return the nodes in --nodelist that a partition does not have; empty if --nodelist names a file."""
    if not (nodelist and partition.nodes) or "/" in nodelist:
        return ""
    partition_nodes = {name for group in partition.nodes for name in expand_nodelist(group.names)}
    return fold_hosts(name for name in expand_nodelist(nodelist) if name not in partition_nodes)


def _find_exclude_obstacles(resources: Resources, nodes: str, partition_text: str) -> list[Obstacle]:
    """Return an obstacle if ``--exclude`` leaves a partition too few nodes; empty if ``--exclude`` names a file."""
    exclude = resources.exclude or ""
    if not exclude or "/" in exclude or nodes in {"", "(null)"}:
        return []
    excluded_nodes = {*expand_nodelist(exclude)}
    remaining_nodes = [name for name in expand_nodelist(nodes) if name not in excluded_nodes]
    node_count = resources.nodes or 1
    if len(remaining_nodes) >= node_count:
        return []
    fault = (
        f"--exclude={exclude} leaves {pluralize(len(remaining_nodes), 'node')} of {partition_text}, which has {nodes}"
    )
    fault += f", and the job needs {node_count}" if remaining_nodes else ""
    return [Obstacle(fault, "exclude fewer nodes, or give another --partition", is_certain=True)]


def _parse_number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None
