"""What is known of a cluster in the words of a site file, each value with where it comes from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.doctor.discover_slurm import Partition

_VENDORS = {"amd": r"mi\d+", "intel": r"pvc|max_?\d+"}


@dataclass(frozen=True)
class Fact:
    """A value, and where it comes from."""

    value: Any
    source: str


def tables(partitions: Sequence[Partition]) -> list[tuple[str, list[str], dict[str, Fact]]]:
    """Return the names of partitions, each with what is to know of it and the keys of its table."""
    found = [(one.name, _notes(one), _facts(one)) for one in partitions]
    if any(one.gpus for one in partitions):
        for _, _, facts in found:
            facts.setdefault("gpus_per_node", Fact(0, "none in sinfo's Gres"))
    return found


def vendor(types: set[str]) -> str | None:
    """Return whose GPUs these are, where their types tell and it is not NVIDIA."""
    for name, pattern in _VENDORS.items():
        if types and all(re.match(pattern, kind.lower()) for kind in types):
            return name
    return None


def _facts(partition: Partition) -> dict[str, Fact]:
    found: dict[str, Fact] = {}
    if most := partition.max_nodes:
        key = "TotalNodes" if str(most) == partition.said.get("TotalNodes") else "MaxNodes"
        found["max_nodes"] = Fact(most, f"scontrol: {key}={most}")
    if (least := partition.said.get("MinNodes", "1")) != "1":
        found["min_nodes"] = Fact(int(least), f"scontrol: MinNodes={least}")
    if limit := partition.max_time:
        found["max_time"] = Fact(limit, f"scontrol: MaxTime={limit}")
    if partition.gpus:
        found |= _of_gpus(partition)
    if most := partition.cpus:
        found["cpus_per_node"] = Fact(most, "sinfo" + _range({kind.cpus for kind in partition.nodes}))
    if most := partition.memory:
        sizes = {kind.memory for kind in partition.nodes}
        source = "sinfo" + _range(sizes) if most == max(sizes) else f"scontrol: MaxMemPerNode={most}"
        found["mem_per_node"] = Fact(f"{most}M", source)
    if partition.said.get("OverSubscribe") == "EXCLUSIVE":
        found["exclusive"] = Fact(value=True, source="scontrol: OverSubscribe=EXCLUSIVE: whole nodes")
    return found


def _notes(partition: Partition) -> list[str]:
    said = partition.said
    allowed = {key: said.get(key, "ALL") for key in ("AllowAccounts", "AllowGroups", "AllowQos")}
    types = sorted(filter(None, partition.gpus))
    return [
        *([f"GPU types: {', '.join(types)}; gpu.type asks for one"] if len(partition.gpus) > 1 else []),
        *([f"without --time: {said['DefaultTime']} (DefaultTime)"] if "DefaultTime" in said else []),
        *(f"{key}={who}" for key, who in allowed.items() if who != "ALL"),
        *([] if partition.up else [f"State={said['State']}, when this was written"]),
    ]


def _of_gpus(partition: Partition) -> dict[str, Fact]:
    """Return the GPUs of nodes: where they differ, the most, for a limit is what some node can do."""
    types, most = set(partition.gpus), partition.gpus_per_node
    counts = {sum(kind.gpus.values()): kind.resources for kind in reversed(partition.nodes)}  # the first of equal ones
    found = {"gpus_per_node": Fact(most, f"sinfo: {counts[most]}" + _range(set(counts)))}
    if len(counts) > 1:
        found["defaults.gpus_per_node"] = Fact(min(set(counts) - {0}), "so many each node with GPUs has")
    if len(types) == 1 and (kind := next(iter(types))):
        found["gpu.type"] = Fact(kind, "sinfo")
    if whose := vendor(types):
        found["gpu.vendor"] = Fact(whose, f"whose {' and '.join(sorted(types))} are")
    return found


def _range(values: set[int]) -> str:
    return f", nodes with {min(values)} to {max(values)}" if len(values) > 1 else ""
