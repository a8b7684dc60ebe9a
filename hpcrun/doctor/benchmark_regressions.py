"""Regressions of a site's benchmark: compared with earlier tests, or of one node compared with the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median, median_high, median_low
from typing import TYPE_CHECKING

from hpcrun.errors import pluralize
from hpcrun.jobs.result_format import format_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpcrun.doctor.benchmark_records import BenchmarkRecord, Metrics
    from hpcrun.finding import Finding

THRESHOLDS = {"latency_us": 0.5, "bandwidth_GBps": 0.2, "compute_GFLOPS": 0.2, "memory_GBps": 0.2}
"""Relative thresholds of a regression; latency varies more between nodes and over time."""

MAX_RECORDS = 20
"""Maximum number of comparable earlier tests."""

LABELS = {
    "latency_us": ("latency", "us"),
    "bandwidth_GBps": ("bandwidth", "GB/s"),
    "compute_GFLOPS": ("compute", "GFLOPS"),
    "memory_GBps": ("memory", "GB/s"),
}
"""Names and units of the metrics."""

NETWORK_METRICS = ("latency_us", "bandwidth_GBps")


@dataclass(frozen=True)
class Regression:
    """A metric that is worse than usual.

    Attributes:
        figure: The key of the metric.
        value: The measured value.
        usual: The usual value.
        beside: The origin of the usual value: ``the other nodes`` or ``5 earlier tests``.
        nodes: The measured nodes; empty for the allreduce of all ranks.
    """

    figure: str
    value: float
    usual: float
    beside: str
    nodes: tuple[str, ...] = ()

    @property
    def says(self) -> str:
        """The regression as a sentence."""
        name, unit = LABELS[self.figure]
        part, usual = (
            abs(self.value - self.usual) / self.usual,
            f"the {format_value(self.usual)} {unit} of {self.beside}",
        )
        how = f"{100 * part:.0f} % {'more' if self.value > self.usual else 'less'} than"
        if part >= 1:
            how = f"{part + 1:.0f} times"
        figures = f"{format_value(self.value)} {unit}, {how} {usual}"
        if not self.nodes:
            return f"the allreduce's {name} is {figures}"
        if len(self.nodes) == 1:
            return f"node {self.nodes[0]} is slow: its {name} is {figures}"
        if self.figure in NETWORK_METRICS and len(self.nodes) == 2:
            return f"the network between {' and '.join(self.nodes)} is slow: its {name} is {figures}"
        return f"nodes {', '.join(self.nodes)} are slow: their {name} is {figures}"


def comparable_records(record: BenchmarkRecord, records: Iterable[BenchmarkRecord]) -> list[BenchmarkRecord]:
    """Return the latest successful tests that are comparable with this one, oldest first.

    Args:
        record: This test.
        records: Earlier tests, oldest first.
    """
    return [one for one in records if not one.failed and one.figures and one.is_comparable_to(record)][-MAX_RECORDS:]


def find_regressions(record: BenchmarkRecord, before: Sequence[BenchmarkRecord]) -> list[Regression]:
    """Return the regressions of a test: of nodes, then of the allreduce of all ranks.

    Args:
        record: The test.
        before: Comparable earlier tests.
    """
    found = [one for key in LABELS for one in _find_slow_nodes(key, record.of_nodes, before)]
    tests = pluralize(len(before), "earlier test")
    for key, value in record.figures.items():
        usual = _median_of_known(one.figures.get(key) for one in before)
        if usual and _is_worse(key, value, usual):
            found.append(Regression(key, value, usual, tests))
    return found


def changed_versions(record: BenchmarkRecord, before: Sequence[BenchmarkRecord]) -> dict[str, tuple[str, str]]:
    """Return the versions that changed since the last earlier test, as pairs of old and new."""
    was = before[-1].versions if before else {}
    return {name: (was[name], now) for name, now in record.versions.items() if name in was and was[name] != now}


def mark_regressions(steps: Iterable[Finding], found: Iterable[Regression]) -> list[Finding]:
    """Return the steps, with warnings for those with regressions."""
    names = {"nodes" if one.nodes else "allreduce" for one in found}
    return [replace(step, severity="warning") if step.check in names else step for step in steps]


def _find_slow_nodes(key: str, nodes: dict[str, Metrics], before: Sequence[BenchmarkRecord]) -> list[Regression]:
    """Return nodes that are slower than the others, or else slower than in earlier tests."""
    values = {name: figures[key] for name, figures in nodes.items() if key in figures}
    if not values:
        return []
    # the worst of the better half: of two nodes the better one
    usual = (median_low if _is_lower_better(key) else median_high)(values.values())
    found = [
        Regression(key, value, usual, "the other nodes", (n,))
        for n, value in values.items()
        if _is_worse(key, value, usual)
    ]
    known = _median_of_known(figures.get(key) for one in before for figures in one.of_nodes.values())
    late = {name: value for name, value in values.items() if known and _is_worse(key, value, known)}
    if found or not late or not known:
        return found
    tests = pluralize(len(before), "earlier test")
    return [Regression(key, median(late.values()), known, tests, tuple(late))]


def _median_of_known(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value]
    return median(there) if there else None


def _is_lower_better(key: str) -> bool:
    return key == "latency_us"


def _is_worse(key: str, value: float, usual: float) -> bool:
    return (value - usual if _is_lower_better(key) else usual - value) > THRESHOLDS[key] * usual
