"""Slurm's partitions: their properties, and the hardware of their nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcrun.gpus import parse_gres

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpcrun.schedulers.slurm_client import SlurmClient

SHOW_PARTITIONS = ("scontrol", "--oneliner", "show", "partition")
SHOW_NODES = ("sinfo", "--noheader", "--exact", "--format=%R|%c|%m|%G|%N|%f")

_PAIR = re.compile(r"(?:^|\s)([A-Za-z]\w*)\s*=\s*(\S*)")
_UNLIMITED = {"", "UNLIMITED", "INFINITE", "NONE", "N/A", "(null)", "0"}


@dataclass(frozen=True)
class NodeGroup:
    """Nodes of a partition with equal hardware, as listed by sinfo(1).

    Attributes:
        cpus: CPUs of each.
        memory: Memory of each in MiB.
        resources: Generic resources (gres) of each, in Slurm's format.
        names: Their names, as a Slurm node list.
        features: Their features, separated by commas.
    """

    cpus: int
    memory: int
    resources: str
    names: str
    features: str = ""

    @property
    def gpus(self) -> dict[str, int]:
        """GPUs of each, by type; the type is empty where Slurm sets none."""
        return parse_gres(self.resources)


@dataclass(frozen=True)
class SlurmPartition:
    """A partition; values of nodes are the maximum of all nodes, or 0 if unknown.

    Attributes:
        name: Its name.
        properties: Its properties from scontrol(1), by Slurm's names, without unlimited ones.
        nodes: Its nodes, grouped by hardware.
        default: Whether it is Slurm's default partition.
        up: Whether it runs jobs.
        max_nodes: Maximum number of nodes of a job.
        max_time: The maximum time limit in Slurm's format; empty if unlimited.
        cpus: CPUs of a node.
        memory: Memory in MiB that a job may use on a node.
        gpus: GPUs of a node, by type.
        gpus_per_node: GPUs of a node, of all types.
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
    """Return the partitions of a Slurm; none if it does not answer.

    Args:
        slurm: Its commands.
        hardware: Whether to query their nodes, too, by a second command.
        timeout: In seconds, of each command.
    """
    text = slurm.query(SHOW_PARTITIONS, timeout=timeout).text
    nodes = slurm.query(SHOW_NODES, timeout=timeout).text if text and hardware else ""
    return parse_partitions(text, nodes)


def find_partition(partitions: Iterable[SlurmPartition], name: str | None) -> SlurmPartition | None:
    """Return the partition of this name, or Slurm's default partition without a name; None if there is none.

    Args:
        partitions: All partitions of a Slurm.
        name: The name that a job gives.
    """
    return next((one for one in partitions if (one.name == name if name else one.default)), None)


def parse_partitions(text: str, nodes: str) -> list[SlurmPartition]:
    """Return all partitions that are visible to this user.

    Args:
        text: The output of `scontrol --oneliner show partition`.
        nodes: The output of sinfo about their nodes: partition, CPUs, memory in MB, generic resources, names,
            features.
    """
    kinds: dict[str, list[NodeGroup]] = {}
    for line in nodes.splitlines():
        if line.count("|") in {4, 5}:
            name, cpus, memory, *texts = line.split("|")
            kinds.setdefault(name, []).append(NodeGroup(_parse_number(cpus), _parse_number(memory), *texts))
    properties = (_PAIR.findall(line) for line in text.splitlines() if line.startswith("PartitionName="))
    return [_parse_partition(name, dict(rest), tuple(kinds.get(name, ()))) for (_, name), *rest in properties]


def _parse_partition(name: str, properties: dict[str, str], nodes: tuple[NodeGroup, ...]) -> SlurmPartition:
    properties = {key: value for key, value in properties.items() if value not in _UNLIMITED}
    bounds = [_parse_number(properties[key]) for key in ("TotalNodes", "MaxNodes") if key in properties]
    memory = [max((kind.memory for kind in nodes), default=0)]
    memory += [_parse_number(properties["MaxMemPerNode"])] if "MaxMemPerNode" in properties else []
    types = dict.fromkeys(kind for one in nodes for kind in one.gpus)
    return SlurmPartition(
        name=name,
        properties=properties,
        nodes=nodes,
        default=properties.get("Default") == "YES",
        up=properties.get("State", "UP") == "UP",
        max_nodes=min(bounds, default=0),
        max_time=properties.get("MaxTime", ""),
        cpus=max((kind.cpus for kind in nodes), default=0),
        memory=min(memory),
        gpus={kind: max(one.gpus.get(kind, 0) for one in nodes) for kind in types},
        gpus_per_node=max((sum(kind.gpus.values()) for kind in nodes), default=0),
    )


def _parse_number(text: str) -> int:
    return int(text) if text.isdigit() else 0
