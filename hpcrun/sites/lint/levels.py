"""Iteration over the tables of a site file with the same keys: the site, partitions, QoS, constraints, accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.finding import Finding
from hpcrun.sites.partition import LEVELS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.finding import Severity
    from hpcrun.sites.partition import Partition
    from hpcrun.sites.site_model import Site


def finding_at(key: tuple[str, ...], problem: str, fix: str, severity: Severity = "warning") -> Finding:
    """Return a finding about the value of a site key."""
    return Finding(severity, "site file", problem, fix, key=key)


def iterate_levels(site: Site) -> Iterator[tuple[tuple[str, ...], Site | Partition]]:
    """Yield the site, and each partition, QoS, constraint and account in it, with its key path."""
    yield (), site
    for table in LEVELS:
        for name, level in getattr(site, table).items():
            yield (table, name), level
