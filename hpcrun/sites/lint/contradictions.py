"""Checks for limits that contradict each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.sites.lint.levels import finding_at, iterate_levels
from hpcrun.sites.partition import LEVELS, Partition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.finding import Finding
    from hpcrun.sites.limits import Limits
    from hpcrun.sites.site_model import Site

FIX = "correct one of the two"


def contradictory_limits(site: Site) -> Iterator[Finding]:
    """Warn of contradicting limits of the site, or of a partition, QoS, constraint or account."""
    site_contradictions = list(_find_contradictions(site.limits))
    for (key, *_), problem in site_contradictions:
        yield finding_at(("limits", key), problem, FIX)
    for (kind, name), level_table in (
        (key, level) for key, level in iterate_levels(site) if isinstance(level, Partition)
    ):
        merged_site = level_table.apply_to(site)
        for keys, problem in _find_contradictions(merged_site.limits):
            if (keys, problem) not in site_contradictions:
                key = next((key for key in keys if getattr(level_table, key) not in (None, ())), keys[0])
                yield finding_at((kind, name, key), f"{LEVELS[kind]} {name}: {problem}", FIX)


def _find_contradictions(limits: Limits) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield each pair of contradicting keys, with a message."""
    min_nodes, max_nodes, gpus = limits.min_nodes, limits.max_nodes, limits.gpus_per_node
    if min_nodes and max_nodes and min_nodes > max_nodes:
        problem = f"min_nodes = {min_nodes} is more than max_nodes = {max_nodes}: every job is refused"
        yield ("min_nodes", "max_nodes"), problem
    if beyond := [str(count) for count in limits.gpus_allowed if gpus is not None and count > gpus]:
        problem = (
            f"gpus_allowed has {', '.join(beyond)}, but gpus_per_node is {gpus}: jobs with as many GPUs are refused"
        )
        yield ("gpus_allowed", "gpus_per_node"), problem
