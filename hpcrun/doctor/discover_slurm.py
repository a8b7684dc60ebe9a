"""What Slurm's commands say of its cluster: for first site files, and for the doctor."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpcrun.gpus import parse_gres

_PAIR = re.compile(r"(?:^|\s)([A-Za-z]\w*)\s*=\s*(\S*)")
_UNLIMITED = {"", "UNLIMITED", "INFINITE", "NONE", "N/A", "(null)", "0"}


@dataclass(frozen=True)
class NodeGroup:
    """Nodes of one kind in a partition, as sinfo(1) tells of them.

    Attributes:
        cpus: CPUs of each.
        memory: Memory of each in MiB.
        resources: Generic resources of each, in Slurm's words.
        names: Their names, in Slurm's shorthand.
    """

    cpus: int
    memory: int
    resources: str
    names: str

    @property
    def gpus(self) -> dict[str, int]:
        """GPUs of each, by type; the type is empty where Slurm has none."""
        return parse_gres(self.resources)


@dataclass(frozen=True)
class SlurmPartition:
    """A partition; its nodes may differ, and what counts is the most that one of them has: 0 where nobody knows.

    Attributes:
        name: Its name.
        said: What scontrol(1) shows of it, by Slurm's names; without what is not limited.
        nodes: Its nodes, by kind.
        default: Whether jobs that name none go there.
        up: Whether jobs run there.
        max_nodes: Nodes of a job.
        max_time: The longest time limit, as Slurm writes it; empty where there is none.
        cpus: CPUs of a node.
        memory: Memory in MiB that a job may have of a node.
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


def parse_config(text: str) -> dict[str, str]:
    """Return the keys and values that `scontrol show config` prints."""
    lines = (line.partition("=") for line in text.splitlines() if " = " in line)
    return {key.strip(): value.strip() for key, _, value in lines}


def enforces_accounts(settings: dict[str, str]) -> bool:
    """Return whether every job needs an account that its user has, as `parse_config` has it."""
    return "associations" in settings.get("AccountingStorageEnforce", "")


def parse_accounts(text: str, settings: dict[str, str]) -> list[str]:
    """Return the accounts that a user has on a cluster: one database may have those of several.

    Args:
        text: What sacctmgr says: account, cluster.
        settings: What `parse_config` returns, with the cluster's name where anybody knows it.
    """
    rows = (line.split("|") for line in text.splitlines() if "|" in line)
    cluster = settings.get("ClusterName", "").lower()  # the database has all names in lower case (slurm.conf(5))
    return list(dict.fromkeys(name for name, where, *_ in rows if name and cluster in {"", where}))


def parse_mpi_types(text: str) -> list[str]:
    """Return the types that `srun --mpi=list` prints: of older versions, each behind srun's name."""
    types = re.findall(r"^(?:srun:)?[ \t]+(\w+)[ \t]*$", text, re.MULTILINE)
    return list(dict.fromkeys([*types, *re.findall(r"pmix_v\d+", text)]))


def parse_partitions(text: str, nodes: str) -> list[SlurmPartition]:
    """Return all partitions that this user is shown.

    Args:
        text: What `scontrol --oneliner show partition` prints.
        nodes: What sinfo says of their nodes: partition, CPUs, memory in MB, generic resources, names.
    """
    kinds: dict[str, list[NodeGroup]] = {}
    for line in nodes.splitlines():
        if line.count("|") == 4:
            name, cpus, memory, resources, names = line.split("|")
            kinds.setdefault(name, []).append(NodeGroup(_parse_number(cpus), _parse_number(memory), resources, names))
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
