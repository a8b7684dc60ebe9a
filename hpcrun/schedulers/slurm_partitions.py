"""The partitions of a Slurm cluster: their properties, and the hardware of their nodes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hpcrun.frozen import frozen
from hpcrun.gpus import parse_gres

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpcrun.schedulers.slurm_client import SlurmClient

SHOW_PARTITIONS = ("scontrol", "--oneliner", "show", "partition")
SHOW_NODES = ("sinfo", "--noheader", "--exact", "--format=%R|%c|%m|%G|%N|%f")

_PAIR = re.compile(r"(?:^|\s)([A-Za-z]\w*)\s*=\s*(\S*)")
_UNLIMITED = {"", "UNLIMITED", "INFINITE", "NONE", "N/A", "(null)", "0"}


@frozen
class NodeGroup:
    """A group of nodes of a partition with equal hardware, as sinfo(1) lists it.

    Attributes:
        cpus: Number of CPUs of each node.
        memory: Memory of each node in MiB.
        resources: The GRES string of each node.
        names: The names of the nodes, as a Slurm node list.
        features: The features of the nodes, separated by commas.
    """

    cpus: int
    memory: int
    resources: str
    names: str
    features: str = ""

    @property
    def gpus(self) -> dict[str, int]:
        """Number of GPUs of each node, by GPU type; the type is empty if Slurm sets none."""
        return parse_gres(self.resources)


@frozen
class SlurmPartition:
    """A partition of a Slurm cluster. Values per node are the maximum over all nodes, or 0 if unknown.

    Attributes:
        name: The name of the partition.
        properties: The properties that scontrol(1) shows, by Slurm's names, without unlimited values.
        nodes: The nodes, grouped by hardware.
        default: Whether this is Slurm's default partition.
        up: Whether the partition starts jobs (State=UP).
        max_nodes: Maximum number of nodes of a job.
        max_time: The maximum time limit in Slurm's format; empty if unlimited.
        cpus: Number of CPUs of a node.
        memory: Memory in MiB that a job may use on a node.
        gpus: Number of GPUs of a node, by GPU type.
        gpus_per_node: Number of GPUs of a node, of all types.
    """

    name: str
    properties: dict[str, str]
    nodes: tuple[NodeGroup, ...]
    default: bool
    up: bool
    max_nodes: int
    max_time: str
    cpus: int
    memory: int
    gpus: dict[str, int]
    gpus_per_node: int


NO_PARTITION = SlurmPartition("", {}, (), False, True, 0, "", 0, 0, {}, 0)
"""A partition without limits."""


def query_partitions(slurm: SlurmClient, *, hardware: bool, timeout: float) -> list[SlurmPartition]:
    """Return the partitions of a Slurm cluster; an empty list if Slurm does not answer.

    Args:
        slurm: The client of the Slurm cluster.
        hardware: Whether to query also the hardware of the nodes, with a second command.
        timeout: Timeout of each command in seconds.
    """
    text = slurm.query(SHOW_PARTITIONS, timeout=timeout).text
    nodes = slurm.query(SHOW_NODES, timeout=timeout).text if text and hardware else ""
    return parse_partitions(text, nodes)


def find_partition(partitions: Iterable[SlurmPartition], name: str | None) -> SlurmPartition | None:
    """Return a partition by its name, or Slurm's default partition if no name is given; None if it does not exist.

    Args:
        partitions: All partitions of the Slurm cluster.
        name: The partition name that a job requests; None or empty: the default partition.
    """
    return next((one for one in partitions if (one.name == name if name else one.default)), None)


def parse_partitions(text: str, nodes: str) -> list[SlurmPartition]:
    """Parse the output of scontrol and sinfo about all partitions that this user can see.

    Args:
        text: The output of `scontrol --oneliner show partition`.
        nodes: The output of sinfo about node groups, with the columns partition, CPUs, memory in MiB, generic
            resources, names and features.
    """
    groups_by_partition: dict[str, list[NodeGroup]] = {}
    for line in nodes.splitlines():
        if line.count("|") in {4, 5}:
            name, cpus, memory, *texts = line.split("|")
            groups_by_partition.setdefault(name, []).append(
                NodeGroup(_parse_number(cpus), _parse_number(memory), *texts)
            )
    properties = (_PAIR.findall(line) for line in text.splitlines() if line.startswith("PartitionName="))
    return [
        _parse_partition(name, dict(rest), tuple(groups_by_partition.get(name, ()))) for (_, name), *rest in properties
    ]


def _parse_partition(name: str, properties: dict[str, str], nodes: tuple[NodeGroup, ...]) -> SlurmPartition:
    properties = {key: value for key, value in properties.items() if value not in _UNLIMITED}
    max_nodes_candidates = [_parse_number(properties[key]) for key in ("TotalNodes", "MaxNodes") if key in properties]
    memory_limits = [max((group.memory for group in nodes), default=0)]
    memory_limits += [_parse_number(properties["MaxMemPerNode"])] if "MaxMemPerNode" in properties else []
    gpu_types = dict.fromkeys(group for one in nodes for group in one.gpus)
    return SlurmPartition(
        name=name,
        properties=properties,
        nodes=nodes,
        default=properties.get("Default") == "YES",
        up=properties.get("State", "UP") == "UP",
        max_nodes=min(max_nodes_candidates, default=0),
        max_time=properties.get("MaxTime", ""),
        cpus=max((group.cpus for group in nodes), default=0),
        memory=min(memory_limits),
        gpus={group: max(one.gpus.get(group, 0) for one in nodes) for group in gpu_types},
        gpus_per_node=max((sum(group.gpus.values()) for group in nodes), default=0),
    )


def _parse_number(text: str) -> int:
    return int(text) if text.isdigit() else 0
