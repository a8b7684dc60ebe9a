"""What a check of a site file finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.sites.model import Site
    from hpcrun.sites.partition import Partition


@dataclass(frozen=True)
class Finding:
    """A value of a site that probably is not what its author meant.

    Attributes:
        key: The value's key path, such as ``("mpi", "type")``.
        says: What was given, and what comes of it.
        fix: What to do about it.
        level: error, where no job can run with it; warning otherwise.
    """

    key: tuple[str, ...]
    says: str
    fix: str
    level: Literal["warning", "error"] = "warning"


def levels(site: Site) -> Iterator[tuple[tuple[str, ...], Site | Partition]]:
    """Yield the site, and its partitions and QoS, which have some of the same keys; each with its key path."""
    yield (), site
    for name, partition in site.partitions.items():
        yield ("partitions", name), partition
    for name, qos in site.qos.items():
        yield ("qos", name), qos
