"""The partition tables of a discovered site file, with the source of each value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.schedulers.slurm_partitions import SlurmPartition

_VENDORS = {"amd": r"mi\d+", "intel": r"pvc|max_?\d+"}


@dataclass(frozen=True)
class DiscoveredValue:
    """A value and its source."""

    value: Any
    source: str


def partition_tables(partitions: Sequence[SlurmPartition]) -> list[tuple[str, list[str], dict[str, DiscoveredValue]]]:
    """Return the name, notes and keys of each partition's table."""
    found = [(one.name, _notes(one), _discover_values(one)) for one in partitions]
    if any(one.gpus for one in partitions):
        for _, _, facts in found:
            facts.setdefault("gpus_per_node", DiscoveredValue(0, "none in sinfo's Gres"))
    return found


def gpu_vendor(types: set[str]) -> str | None:
    """Return the GPU vendor if the GPU types show that it is not NVIDIA."""
    for name, pattern in _VENDORS.items():
        if types and all(re.match(pattern, kind.lower()) for kind in types):
            return name
    return None


def _discover_values(partition: SlurmPartition) -> dict[str, DiscoveredValue]:
    values: dict[str, DiscoveredValue] = {}
    if most := partition.max_nodes:
        key = "TotalNodes" if str(most) == partition.properties.get("TotalNodes") else "MaxNodes"
        values["max_nodes"] = DiscoveredValue(most, f"scontrol: {key}={most}")
    if (least := partition.properties.get("MinNodes", "1")) != "1":
        values["min_nodes"] = DiscoveredValue(int(least), f"scontrol: MinNodes={least}")
    if limit := partition.max_time:
        values["max_time"] = DiscoveredValue(limit, f"scontrol: MaxTime={limit}")
    if partition.gpus:
        values |= _discover_gpus(partition)
    if most := partition.cpus:
        values["cpus_per_node"] = DiscoveredValue(
            most, "sinfo" + _format_range({kind.cpus for kind in partition.nodes})
        )
    if most := partition.memory:
        sizes = {kind.memory for kind in partition.nodes}
        source = "sinfo" + _format_range(sizes) if most == max(sizes) else f"scontrol: MaxMemPerNode={most}"
        values["mem_per_node"] = DiscoveredValue(f"{most}M", source)
    if partition.properties.get("OverSubscribe") == "EXCLUSIVE":
        values["exclusive"] = DiscoveredValue(value=True, source="scontrol: OverSubscribe=EXCLUSIVE: whole nodes")
    return values


def _notes(partition: SlurmPartition) -> list[str]:
    properties = partition.properties
    allowed = {key: properties.get(key, "ALL") for key in ("AllowAccounts", "AllowGroups", "AllowQos")}
    types = sorted(filter(None, partition.gpus))
    return [
        *([f"GPU types: {', '.join(types)}; gpu.type selects one"] if len(partition.gpus) > 1 else []),
        *([f"without --time: {properties['DefaultTime']} (DefaultTime)"] if "DefaultTime" in properties else []),
        *(f"{key}={who}" for key, who in allowed.items() if who != "ALL"),
        *([] if partition.up else [f"State={properties['State']}, at the time of discovery"]),
    ]


def _discover_gpus(partition: SlurmPartition) -> dict[str, DiscoveredValue]:
    """Return the keys about GPUs; the limit is the maximum of all nodes."""
    types, most = set(partition.gpus), partition.gpus_per_node
    counts = {
        sum(kind.gpus.values()): kind.resources for kind in reversed(partition.nodes)
    }  # the first of equal counts
    found = {"gpus_per_node": DiscoveredValue(most, f"sinfo: {counts[most]}" + _format_range(set(counts)))}
    if len(counts) > 1:
        found["defaults.gpus_per_node"] = DiscoveredValue(min(set(counts) - {0}), "the minimum of all nodes with GPUs")
    if len(types) == 1 and (kind := next(iter(types))):
        found["gpu.type"] = DiscoveredValue(kind, "sinfo")
    if vendor := gpu_vendor(types):
        found["gpu.vendor"] = DiscoveredValue(vendor, f"the vendor of {' and '.join(sorted(types))}")
    return found


def _format_range(values: set[int]) -> str:
    return f", nodes with {min(values)} to {max(values)}" if len(values) > 1 else ""
