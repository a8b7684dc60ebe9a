"""Regressions in a site's benchmark: values worse than in earlier benchmarks, or nodes slower than the others."""

from __future__ import annotations

from dataclasses import replace
from statistics import median, median_high, median_low
from typing import TYPE_CHECKING

from hpcrun.errors import pluralize
from hpcrun.frozen import frozen
from hpcrun.jobs.result_format import format_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpcrun.doctor.benchmark_records import BenchmarkRecord, Metrics
    from hpcrun.finding import Finding

THRESHOLDS = {"latency_us": 0.5, "bandwidth_GBps": 0.2, "compute_GFLOPS": 0.2, "memory_GBps": 0.2}
"""Relative thresholds of a regression, by metric; latency varies more than other metrics."""

MAX_RECORDS = 20
"""Maximum number of earlier benchmarks to compare with."""

LABELS = {
    "latency_us": ("latency", "us"),
    "bandwidth_GBps": ("bandwidth", "GB/s"),
    "compute_GFLOPS": ("compute", "GFLOPS"),
    "memory_GBps": ("memory", "GB/s"),
}
"""Names and units of the metrics in messages."""

NETWORK_METRICS = ("latency_us", "bandwidth_GBps")


@frozen
class Regression:
    """A metric that is worse than usual.

    Attributes:
        figure: The name of the metric, a key of `LABELS`.
        value: The measured value.
        usual: The usual value.
        beside: The source of the usual value: ``the other nodes`` or ``5 earlier tests``.
        nodes: The measured nodes; empty for the allreduce of all ranks.
    """

    figure: str
    value: float
    usual: float
    beside: str
    nodes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """A sentence about the regression."""
        name, unit = LABELS[self.figure]
        relative_change, usual_text = (
            abs(self.value - self.usual) / self.usual,
            f"the {format_value(self.usual)} {unit} of {self.beside}",
        )
        comparison = f"{100 * relative_change:.0f} % {'more' if self.value > self.usual else 'less'} than"
        if relative_change >= 1:
            comparison = f"{relative_change + 1:.0f} times"
        values = f"{format_value(self.value)} {unit}, {comparison} {usual_text}"
        if not self.nodes:
            return f"the allreduce's {name} is {values}"
        if len(self.nodes) == 1:
            return f"node {self.nodes[0]} is slow: its {name} is {values}"
        if self.figure in NETWORK_METRICS and len(self.nodes) == 2:
            return f"the network between {' and '.join(self.nodes)} is slow: its {name} is {values}"
        return f"nodes {', '.join(self.nodes)} are slow: their {name} is {values}"


def comparable_records(record: BenchmarkRecord, records: Iterable[BenchmarkRecord]) -> list[BenchmarkRecord]:
    """Return the latest successful benchmarks that are comparable with a benchmark, oldest first.

    Args:
        record: The record of the benchmark.
        records: The records of earlier benchmarks, oldest first.
    """
    return [one for one in records if not one.failed and one.figures and one.is_comparable_to(record)][-MAX_RECORDS:]


def find_regressions(record: BenchmarkRecord, earlier_records: Sequence[BenchmarkRecord]) -> list[Regression]:
    """Return the regressions in a benchmark: of single nodes, then of the allreduce over all ranks.

    Args:
        record: The record of the benchmark.
        earlier_records: The records of comparable earlier benchmarks.
    """
    regressions = [one for key in LABELS for one in _find_slow_nodes(key, record.of_nodes, earlier_records)]
    comparison = pluralize(len(earlier_records), "earlier test")
    for key, value in record.figures.items():
        reference_value = _median_of_known(one.figures.get(key) for one in earlier_records)
        if reference_value and _is_worse(key, value, reference_value):
            regressions.append(Regression(key, value, reference_value, comparison))
    return regressions


def changed_versions(record: BenchmarkRecord, earlier_records: Sequence[BenchmarkRecord]) -> dict[str, tuple[str, str]]:
    """Return the versions that changed since the last earlier benchmark, as (old, new) by name."""
    old_versions = earlier_records[-1].versions if earlier_records else {}
    return {
        name: (old_versions[name], new)
        for name, new in record.versions.items()
        if name in old_versions and old_versions[name] != new
    }


def mark_regressions(steps: Iterable[Finding], regressions: Iterable[Regression]) -> list[Finding]:
    """Return the benchmark steps, with a warning for each step that has regressions."""
    slow_steps = {"nodes" if one.nodes else "allreduce" for one in regressions}
    return [replace(step, severity="warning") if step.check in slow_steps else step for step in steps]


def _find_slow_nodes(
    key: str, nodes: dict[str, Metrics], earlier_records: Sequence[BenchmarkRecord]
) -> list[Regression]:
    """Return the nodes that are slower than the other nodes; else the nodes slower than in earlier runs."""
    values = {name: figures[key] for name, figures in nodes.items() if key in figures}
    if not values:
        return []
    # the better of the two middle values: for two nodes, the value of the faster node
    median_of_nodes = (median_low if _is_lower_better(key) else median_high)(values.values())
    slow_nodes = [
        Regression(key, value, median_of_nodes, "the other nodes", (n,))
        for n, value in values.items()
        if _is_worse(key, value, median_of_nodes)
    ]
    earlier_median = _median_of_known(figures.get(key) for one in earlier_records for figures in one.of_nodes.values())
    slower_values = {
        name: value for name, value in values.items() if earlier_median and _is_worse(key, value, earlier_median)
    }
    if slow_nodes or not slower_values or not earlier_median:
        return slow_nodes
    comparison = pluralize(len(earlier_records), "earlier test")
    return [Regression(key, median(slower_values.values()), earlier_median, comparison, tuple(slower_values))]


def _median_of_known(values: Iterable[float | None]) -> float | None:
    known_values = [value for value in values if value]
    return median(known_values) if known_values else None


def _is_lower_better(key: str) -> bool:
    return key == "latency_us"


def _is_worse(key: str, value: float, reference_value: float) -> bool:
    return (value - reference_value if _is_lower_better(key) else reference_value - value) > THRESHOLDS[
        key
    ] * reference_value
