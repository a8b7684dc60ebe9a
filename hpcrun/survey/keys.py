"""What is known of a cluster in the words of a site file, each value with where it comes from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.survey.slurm import Nodes, Partition

_VENDORS = {"amd": r"mi\d+", "intel": r"pvc|max_?\d+"}


@dataclass(frozen=True)
class Fact:
    """A value, and where it comes from."""

    value: Any
    source: str


@dataclass(frozen=True)
class Table:
    """What a site file says of a partition.

    Attributes:
        name: The partition.
        facts: Values of its keys.
        notes: What else is to know of it.
    """

    name: str
    facts: dict[str, Fact] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def tables(partitions: Sequence[Partition]) -> list[Table]:
    """Return what a site file says of partitions."""
    found = [_table(one) for one in partitions]
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


def _table(partition: Partition) -> Table:
    table = Table(partition.name, notes=_notes(partition))
    facts = table.facts
    if most := partition.max_nodes:
        key = "TotalNodes" if most == partition.number("TotalNodes") else "MaxNodes"
        facts["max_nodes"] = Fact(most, f"scontrol: {key}={most}")
    if (least := partition.number("MinNodes")) > 1:
        facts["min_nodes"] = Fact(least, f"scontrol: MinNodes={least}")
    if limit := partition.max_time:
        facts["max_time"] = Fact(limit, f"scontrol: MaxTime={limit}")
    if partition.gpus_per_node:
        _gpus(table, partition.nodes)
    if most := partition.cpus:
        facts["cpus_per_node"] = Fact(most, "sinfo" + _range({kind.cpus for kind in partition.nodes}))
    if most := partition.memory:
        sizes = {kind.memory for kind in partition.nodes}
        source = "sinfo" + _range(sizes) if most == max(sizes) else f"scontrol: MaxMemPerNode={most}"
        facts["mem_per_node"] = Fact(f"{most}M", source)
    if partition.said.get("OverSubscribe") == "EXCLUSIVE":
        facts["exclusive"] = Fact(value=True, source="scontrol: OverSubscribe=EXCLUSIVE: whole nodes")
    return table


def _notes(partition: Partition) -> list[str]:
    time = partition.limit("DefaultTime")
    allowed = {key: partition.said.get(key, "ALL") for key in ("AllowAccounts", "AllowGroups", "AllowQos")}
    return [
        *([f"without --time: {time} (DefaultTime)"] if time else []),
        *(f"{key}={who}" for key, who in allowed.items() if who not in {"ALL", "", "(null)"}),
        *([f"State={partition.state}, when this was written"] if partition.state != "UP" else []),
    ]


def _gpus(table: Table, nodes: Sequence[Nodes]) -> None:
    """Add the GPUs of nodes: where they differ, the most, for a limit is what some node can do."""
    counts = {sum(kind.gpus.values()): kind.resources for kind in reversed(nodes)}  # of equal ones the first is told
    types = {kind for one in nodes for kind in one.gpus}
    table.facts["gpus_per_node"] = Fact(max(counts), f"sinfo: {counts[max(counts)]}" + _range(set(counts)))
    if len(counts) > 1:
        table.facts["defaults.gpus_per_node"] = Fact(min(set(counts) - {0}), "so many each node with GPUs has")
    if len(types) == 1 and (kind := next(iter(types))):
        table.facts["gpu.type"] = Fact(kind, "sinfo")
    elif len(types) > 1:
        table.notes.append(f"GPU types: {', '.join(sorted(filter(None, types)))}; gpu.type asks for one")
    if whose := vendor(types):
        table.facts["gpu.vendor"] = Fact(whose, f"whose {' and '.join(sorted(types))} are")


def _range(values: set[int]) -> str:
    return f", nodes with {min(values)} to {max(values)}" if len(values) > 1 else ""
