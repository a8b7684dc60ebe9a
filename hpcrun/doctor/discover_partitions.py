"""Discovery of the partition tables of a site file, with the source of each value."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.schedulers.slurm_partitions import SlurmPartition

_VENDORS = {"amd": r"mi\d+", "intel": r"pvc|max_?\d+"}


@frozen
class DiscoveredValue:
    """A value for the site file, and the source of the value, which the file names in a comment."""

    value: Any
    source: str


def partition_tables(partitions: Sequence[SlurmPartition]) -> list[tuple[str, list[str], dict[str, DiscoveredValue]]]:
    """Return the name, notes and keys of each partition's table."""
    tables = [(one.name, _partition_notes(one), _discover_values(one)) for one in partitions]
    if any(one.gpus for one in partitions):
        for _, _, facts in tables:
            facts.setdefault("gpus_per_node", DiscoveredValue(0, "none in sinfo's Gres"))
    return tables


def gpu_vendor(types: set[str]) -> str | None:
    """Return the GPU vendor that the GPU types imply; None for NVIDIA or an unknown vendor."""
    for name, pattern in _VENDORS.items():
        if types and all(re.match(pattern, kind.lower()) for kind in types):
            return name
    return None


def _discover_values(partition: SlurmPartition) -> dict[str, DiscoveredValue]:
    values: dict[str, DiscoveredValue] = {}
    if maximum := partition.max_nodes:
        key = "TotalNodes" if str(maximum) == partition.properties.get("TotalNodes") else "MaxNodes"
        values["max_nodes"] = DiscoveredValue(maximum, f"scontrol: {key}={maximum}")
    if (min_nodes := partition.properties.get("MinNodes", "1")) != "1":
        values["min_nodes"] = DiscoveredValue(int(min_nodes), f"scontrol: MinNodes={min_nodes}")
    if max_time := partition.max_time:
        values["max_time"] = DiscoveredValue(max_time, f"scontrol: MaxTime={max_time}")
    if partition.gpus:
        values |= _discover_gpus(partition)
    if maximum := partition.cpus:
        values["cpus_per_node"] = DiscoveredValue(
            maximum, "sinfo" + _format_range({kind.cpus for kind in partition.nodes})
        )
    if maximum := partition.memory:
        memory_sizes = {kind.memory for kind in partition.nodes}
        source = (
            "sinfo" + _format_range(memory_sizes)
            if maximum == max(memory_sizes)
            else f"scontrol: MaxMemPerNode={maximum}"
        )
        values["mem_per_node"] = DiscoveredValue(f"{maximum}M", source)
    if partition.properties.get("OverSubscribe") == "EXCLUSIVE":
        values["exclusive"] = DiscoveredValue(value=True, source="scontrol: OverSubscribe=EXCLUSIVE: whole nodes")
    return values


def _partition_notes(partition: SlurmPartition) -> list[str]:
    properties = partition.properties
    allowed_names = {key: properties.get(key, "ALL") for key in ("AllowAccounts", "AllowGroups", "AllowQos")}
    types = sorted(filter(None, partition.gpus))
    return [
        *([f"GPU types: {', '.join(types)}; gpu.type selects one"] if len(partition.gpus) > 1 else []),
        *([f"without --time: {properties['DefaultTime']} (DefaultTime)"] if "DefaultTime" in properties else []),
        *(f"{key}={who}" for key, who in allowed_names.items() if who != "ALL"),
        *([] if partition.up else [f"State={properties['State']}, at the time of discovery"]),
    ]


def _discover_gpus(partition: SlurmPartition) -> dict[str, DiscoveredValue]:
    """Return the site keys for GPUs; ``gpus_per_node`` is the maximum of all nodes."""
    gpu_types, max_gpus = set(partition.gpus), partition.gpus_per_node
    resources_by_count = {
        sum(gpu_type.gpus.values()): gpu_type.resources for gpu_type in reversed(partition.nodes)
    }  # node groups with equal numbers of GPUs: the first group is used
    values = {
        "gpus_per_node": DiscoveredValue(
            max_gpus, f"sinfo: {resources_by_count[max_gpus]}" + _format_range(set(resources_by_count))
        )
    }
    if len(resources_by_count) > 1:
        values["defaults.gpus_per_node"] = DiscoveredValue(
            min(set(resources_by_count) - {0}), "the minimum of all nodes with GPUs"
        )
    if len(gpu_types) == 1 and (gpu_type := next(iter(gpu_types))):
        values["gpu.type"] = DiscoveredValue(gpu_type, "sinfo")
    if vendor := gpu_vendor(gpu_types):
        values["gpu.vendor"] = DiscoveredValue(vendor, f"the vendor of {' and '.join(sorted(gpu_types))}")
    return values


def _format_range(values: set[int]) -> str:
    return f", nodes with {min(values)} to {max(values)}" if len(values) > 1 else ""
