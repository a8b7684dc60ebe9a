"""Checks for limits that contradict each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.sites.lint.levels import finding_at, iterate_levels
from hpcrun.sites.partition import LEVELS, Partition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.finding import Finding
    from hpcrun.sites.limits import Limits
    from hpcrun.sites.model import Site

FIX = "correct one of the two"


def contradictory_limits(site: Site) -> Iterator[Finding]:
    """Warn of limits that no job can meet on the site, or in one of its tables for some jobs; each once."""
    whole = list(_find_contradictions(site.limits))
    for (key, *_), says in whole:
        yield finding_at(("limits", key), says, FIX)
    for (kind, name), own in ((key, level) for key, level in iterate_levels(site) if isinstance(level, Partition)):
        merged = own.apply_to(site)
        for keys, says in _find_contradictions(merged.limits):
            if (keys, says) not in whole:
                key = next((key for key in keys if getattr(own, key) not in (None, ())), keys[0])
                yield finding_at((kind, name, key), f"{LEVELS[kind]} {name}: {says}", FIX)


def _find_contradictions(limits: Limits) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield pairs of contradicting keys, with a message."""
    least, most, gpus = limits.min_nodes, limits.max_nodes, limits.gpus_per_node
    if least and most and least > most:
        says = f"min_nodes = {least} is more than max_nodes = {most}: every job is refused"
        yield ("min_nodes", "max_nodes"), says
    if beyond := [str(count) for count in limits.gpus_allowed if gpus is not None and count > gpus]:
        says = f"gpus_allowed has {', '.join(beyond)}, but gpus_per_node is {gpus}: jobs with as many GPUs are refused"
        yield ("gpus_allowed", "gpus_per_node"), says
