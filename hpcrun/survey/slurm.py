"""What Slurm's commands say of its cluster: for first site files, and for the doctor."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpcrun.schedulers import gres

_PAIR = re.compile(r"(?:^|\s)([A-Za-z]\w*)\s*=\s*(\S*)")
_UNLIMITED = {"", "UNLIMITED", "INFINITE", "NONE", "N/A", "(null)", "0"}


@dataclass(frozen=True)
class Nodes:
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
        return gres.gpus(self.resources)


@dataclass(frozen=True)
class Partition:
    """A partition; its nodes may differ, and what a limit says is the most that one of them has.

    Attributes:
        said: What scontrol(1) shows of it, by Slurm's names.
        nodes: Its nodes, by kind.
    """

    said: dict[str, str]
    nodes: tuple[Nodes, ...]

    @property
    def name(self) -> str:
        """Its name."""
        return self.said["PartitionName"]

    @property
    def default(self) -> bool:
        """Whether jobs that name none go there."""
        return self.said.get("Default") == "YES"

    @property
    def root_only(self) -> bool:
        """Whether no user's job may go there."""
        return self.said.get("RootOnly") == "YES"

    @property
    def state(self) -> str:
        """UP where it takes jobs that run."""
        return self.said.get("State", "UP")

    @property
    def max_nodes(self) -> int:
        """The most nodes of a job; 0 where nobody knows."""
        return min((bound for key in ("TotalNodes", "MaxNodes") if (bound := self.number(key))), default=0)

    @property
    def max_time(self) -> str | None:
        """The longest time limit, as Slurm writes it; None where there is none."""
        return self.limit("MaxTime")

    @property
    def cpus(self) -> int:
        """CPUs of a node."""
        return max((kind.cpus for kind in self.nodes), default=0)

    @property
    def memory(self) -> int:
        """Memory in MiB that a job may have of a node."""
        most = max((kind.memory for kind in self.nodes), default=0)
        return min(most, self.number("MaxMemPerNode") or most)

    @property
    def gpus(self) -> dict[str, int]:
        """GPUs of a node, by type."""
        return {kind: max(one.gpus.get(kind, 0) for one in self.nodes) for each in self.nodes for kind in each.gpus}

    @property
    def gpus_per_node(self) -> int:
        """GPUs of a node, of all types."""
        return max((sum(kind.gpus.values()) for kind in self.nodes), default=0)

    def limit(self, key: str) -> str | None:
        """Return a value of `said`; None where it limits nothing."""
        value = self.said.get(key, "")
        return None if value in _UNLIMITED else value

    def number(self, key: str) -> int:
        """Return the same as a number; 0 where it limits nothing."""
        return _number(self.limit(key) or "")


def config(text: str) -> dict[str, str]:
    """Return the keys and values that `scontrol show config` prints."""
    lines = (line.partition("=") for line in text.splitlines() if " = " in line)
    return {key.strip(): value.strip() for key, _, value in lines}


def version(settings: dict[str, str]) -> str:
    """Return Slurm's version, as `config` has it."""
    return settings.get("SLURM_VERSION") or "of some version"


def enforces_accounts(settings: dict[str, str]) -> bool:
    """Return whether every job needs an account that its user has, as `config` has it."""
    return "associations" in settings.get("AccountingStorageEnforce", "")


def accounts(text: str, settings: dict[str, str]) -> list[str]:
    """Return the accounts that a user has on a cluster: one database may have those of several.

    Args:
        text: What sacctmgr says: account, cluster.
        settings: What `config` returns, with the cluster's name where anybody knows it.
    """
    rows, cluster = (line.split("|") for line in text.splitlines() if "|" in line), settings.get("ClusterName", "")
    return list(dict.fromkeys(name for name, where, *_ in rows if name and cluster in {"", where}))


def mpi_types(text: str) -> list[str]:
    """Return the types that `srun --mpi=list` prints: of older versions, each behind srun's name."""
    types = re.findall(r"^(?:srun:)?[ \t]+(\w+)[ \t]*$", text, re.MULTILINE)
    return list(dict.fromkeys([*types, *re.findall(r"pmix_v\d+", text)]))


def partitions(text: str, nodes: str) -> list[Partition]:
    """Return all partitions that this user is shown.

    Args:
        text: What `scontrol --oneliner show partition` prints.
        nodes: What sinfo says of their nodes: partition, CPUs, memory in MB, generic resources, names.
    """
    kinds: dict[str, list[Nodes]] = {}
    for line in nodes.splitlines():
        if line.count("|") == 4:
            name, cpus, memory, resources, names = line.split("|")
            kinds.setdefault(name, []).append(Nodes(_number(cpus), _number(memory), resources, names))
    said = (dict(_PAIR.findall(line)) for line in text.splitlines() if line.startswith("PartitionName="))
    return [Partition(one, tuple(kinds.get(one["PartitionName"], ()))) for one in said]


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
