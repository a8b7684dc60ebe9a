"""The levels of a site file (site, partitions, QoS) with the same keys, and findings about values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.finding import Severity
    from hpcrun.sites.model import Site
    from hpcrun.sites.partition import Partition


def finding_at(key: tuple[str, ...], what: str, fix: str, severity: Severity = "warning") -> Finding:
    """Return a finding about the value of a key."""
    return Finding(severity, "site file", what, fix, key=key)


def iterate_levels(site: Site) -> Iterator[tuple[tuple[str, ...], Site | Partition]]:
    """Yield the site, its partitions and its QoS, which share keys, each with its key path."""
    yield (), site
    for name, partition in site.partitions.items():
        yield ("partitions", name), partition
    for name, qos in site.qos.items():
        yield ("qos", name), qos
