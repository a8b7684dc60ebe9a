"""Checks for sizes and times without a unit, which Slurm reads in MiB and minutes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hpcrun.sites.lint.levels import finding_at, iterate_levels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.finding import Finding
    from hpcrun.sites.site_model import Site


def size_in_mib(site: Site) -> Iterator[Finding]:
    """Warn of a memory size below 1000 MiB, which is probably in GiB."""
    for key, value in _iterate_values(site, ("mem_per_node",), ("mem", "mem_per_gpu")):
        if re.fullmatch(r"[1-9]\d{0,2}", value):
            yield finding_at(key, f"{key[-1]} = {value} is {value} MiB", f'for GiB: {key[-1]} = "{value}G"')


def time_in_minutes(site: Site) -> Iterator[Finding]:
    """Warn of a time limit of 24, 48 or 72 minutes, which is probably in hours."""
    for key, value in _iterate_values(site, ("max_time",), ("time",)):
        if value in {"24", "48", "72"}:
            yield finding_at(key, f"{key[-1]} = {value} is {value} minutes", f'for hours: {key[-1]} = "{value}:00:00"')


def _iterate_values(
    site: Site, limits: tuple[str, ...], defaults: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the key path of a limit or default in each table of a site, and its value as text."""
    for path, level in iterate_levels(site):
        level_limits = level if path else site.limits
        parent_key = path or ("limits",)
        values = [((*parent_key, name), getattr(level_limits, name)) for name in limits]
        values += [((*path, "defaults", name), getattr(level.defaults, name)) for name in defaults]
        yield from ((key, str(value)) for key, value in values if value is not None)
