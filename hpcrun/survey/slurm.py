"""What Slurm's commands say of its partitions, in the words of a site file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from hpcrun.schedulers import gres

_PAIR = re.compile(r"(?:^|\s)([A-Za-z]\w*)\s*=\s*(\S*)")
_UNLIMITED = {"", "UNLIMITED", "INFINITE", "NONE", "N/A", "(null)", "0"}
_VENDORS = {"amd": r"mi\d+", "intel": r"pvc|max_?\d+"}


@dataclass(frozen=True)
class Fact:
    """A value, and where it comes from."""

    value: Any
    source: str


@dataclass
class Partition:
    """One partition.

    Attributes:
        name: Its name.
        facts: Values of the keys that its table in a site file has.
        notes: What else is to know of it.
        default: Whether jobs that name none go there.
    """

    name: str
    facts: dict[str, Fact] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    default: bool = False


def config(text: str) -> dict[str, str]:
    """Return the keys and values that `scontrol show config` prints."""
    lines = (line.partition("=") for line in text.splitlines() if " = " in line)
    return {key.strip(): value.strip() for key, _, value in lines}


def accounts(text: str, cluster: str) -> list[str]:
    """Return the accounts that a user has on a cluster: one database may have those of several.

    Args:
        text: What sacctmgr says: account, cluster.
        cluster: The cluster's name; empty where nobody knows.
    """
    rows = (line.split("|") for line in text.splitlines())
    return list(dict.fromkeys(name for name, where, *_ in rows if name and cluster in {"", where}))


def partitions(text: str, nodes: str) -> list[Partition]:
    """Return the partitions that jobs may go to.

    Args:
        text: What `scontrol --oneliner show partition` prints.
        nodes: What sinfo says of their nodes: partition, number, CPUs, memory in MB, generic resources, names.
    """
    kinds: dict[str, list[list[str]]] = {}
    for line in nodes.splitlines():
        if line.count("|") == 5:
            name, *rest = line.split("|")
            kinds.setdefault(name, []).append(rest)
    said = [dict(_PAIR.findall(line)) for line in text.splitlines() if line.startswith("PartitionName=")]
    found = [_partition(one, kinds.get(one["PartitionName"], [])) for one in said if one.get("RootOnly") != "YES"]
    if any("gpus_per_node" in one.facts for one in found):
        for one in found:
            one.facts.setdefault("gpus_per_node", Fact(0, "none in sinfo's Gres"))
    return found


def vendor(types: set[str]) -> str | None:
    """Return whose GPUs these are, where their types tell and it is not NVIDIA."""
    for name, pattern in _VENDORS.items():
        if types and all(re.match(pattern, kind.lower()) for kind in types):
            return name
    return None


def _partition(said: dict[str, str], nodes: list[list[str]]) -> Partition:
    one = Partition(said["PartitionName"], default=said.get("Default") == "YES")
    total, most = _number(said.get("TotalNodes")), _number(said.get("MaxNodes"))
    if bounds := [bound for bound in (total, most) if bound]:
        source = (
            f"scontrol: TotalNodes={total}" if most is None or most >= (total or most) else f"scontrol: MaxNodes={most}"
        )
        one.facts["max_nodes"] = Fact(min(bounds), source)
    if (least := _number(said.get("MinNodes"))) and least > 1:
        one.facts["min_nodes"] = Fact(least, f"scontrol: MinNodes={least}")
    if (limit := said.get("MaxTime", "")) not in _UNLIMITED:
        one.facts["max_time"] = Fact(limit, f"scontrol: MaxTime={limit}")
    _sizes(one, nodes, _number(said.get("MaxMemPerNode")))
    if said.get("OverSubscribe") == "EXCLUSIVE":
        one.facts["exclusive"] = Fact(value=True, source="scontrol: OverSubscribe=EXCLUSIVE: whole nodes")
    if (time := said.get("DefaultTime", "")) not in _UNLIMITED:
        one.notes.append(f"without --time: {time} (DefaultTime)")
    for key in ("AllowAccounts", "AllowGroups", "AllowQos"):
        if said.get(key, "ALL") not in {"ALL", "", "(null)"}:
            one.notes.append(f"{key}={said[key]}")
    if said.get("State", "UP") != "UP":
        one.notes.append(f"State={said['State']}, when this was written")
    return one


def _sizes(one: Partition, nodes: list[list[str]], most_memory: int | None) -> None:
    """Add what the partition's nodes have: where they differ, the most, for a limit is what some node can do."""
    cpus = {int(cpu) for _, cpu, *_ in nodes if cpu.isdigit()}
    memory = {int(size) for _, _, size, *_ in nodes if size.isdigit()}
    told = [resources for *_, resources, _ in nodes]
    count = {resources: sum(gres.gpus(resources).values()) for resources in told}
    counts, types = set(count.values()), {kind for resources in told for kind in gres.gpus(resources)}
    if max(counts, default=0):
        most = max(count, key=lambda resources: count[resources])
        one.facts["gpus_per_node"] = Fact(count[most], f"sinfo: {most}" + _range(counts))
        if len(counts) > 1:
            least = min(counts - {0})
            one.facts["defaults.gpus_per_node"] = Fact(least, "so many each node with GPUs has")
        if len(types) == 1 and (kind := next(iter(types))):
            one.facts["gpu.type"] = Fact(kind, "sinfo")
        elif len(types) > 1:
            one.notes.append(f"GPU types: {', '.join(sorted(filter(None, types)))}; gpu.type asks for one")
        if whose := vendor(types):
            one.facts["gpu.vendor"] = Fact(whose, f"whose {' and '.join(sorted(types))} are")
    if cpus:
        one.facts["cpus_per_node"] = Fact(max(cpus), "sinfo" + _range(cpus))
    if memory:
        size = min(max(memory), most_memory or max(memory))
        source = "sinfo" + _range(memory) if size == max(memory) else f"scontrol: MaxMemPerNode={size}"
        one.facts["mem_per_node"] = Fact(f"{size}M", source)


def _range(values: set[int]) -> str:
    return f", nodes with {min(values)} to {max(values)}" if len(values) > 1 else ""


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() and text != "0" else None
