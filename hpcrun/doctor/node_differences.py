"""Differences between the facts about hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from hpcrun.finding import warning
from hpcrun.frozen import frozen
from hpcrun.nodelist import fold_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpcrun.doctor.node_report import NodeReport
    from hpcrun.finding import Finding

THIS_HOST = "here"
"""The label of the host that runs the doctor."""

FACTS_EXPECTED_EQUAL = ("Python", "hpcrun", "modules", "MPI library", "XLA_FLAGS")
"""Facts that the job script determines: they should be equal on this host and on nodes (unlike LD_LIBRARY_PATH)."""


@frozen
class HostFact:
    """The values of one fact on several hosts.

    Attributes:
        name: The name of the fact.
        values: Each value with the nodes that have it, the most frequent first.
        this_host: The value on the host that runs the doctor; None if unknown.
        differs: ``nodes`` if nodes differ, ``here`` if all nodes differ from this host; empty if all are equal.
    """

    name: str
    values: tuple[tuple[str, tuple[str, ...]], ...]
    this_host: str | None
    differs: Literal["nodes", "here", ""]

    def hosts_by_value(self) -> list[tuple[str, str]]:
        """Return each value, and the hosts that have it as a Slurm node list."""
        if not self.differs:
            return [(self.values[0][0], "everywhere" if self.this_host is not None else "all nodes")]
        lines = [(value, [fold_hosts(hosts)]) for value, hosts in self.values]
        for value, host_names in lines:
            if value == self.this_host:
                host_names.append(THIS_HOST)
                break
        else:
            lines += [(self.this_host, [THIS_HOST])] if self.this_host is not None else []
        return [(value or "(none)", " and ".join(host_names)) for value, host_names in lines]


def compare_hosts(nodes: Sequence[NodeReport], local_report: NodeReport | None) -> list[HostFact]:
    """Compare the facts about hosts, in the order of the first report; facts that are empty on all hosts are omitted.

    Args:
        nodes: The report of `hpcrun.doctor.node_probe` on each node.
        local_report: The report on this host; None without one.
    """
    local_facts = local_report.fact_texts if local_report else {}
    facts_by_host = [(node.host, node.fact_texts) for node in nodes]
    compared_facts = []
    for name in dict.fromkeys(
        key
        for host_facts in (*(host_facts for _, host_facts in facts_by_host), local_facts)
        for key in host_facts
        if nodes
    ):
        hosts_by_value: dict[str, list[str]] = {}
        for host, host_facts in facts_by_host:
            hosts_by_value.setdefault(host_facts.get(name, ""), []).append(host)
        value = local_facts.get(name, "") if local_facts else None
        if not any(hosts_by_value) and not value:
            continue
        values = tuple(
            sorted(((value, tuple(hosts)) for value, hosts in hosts_by_value.items()), key=lambda one: -len(one[1]))
        )
        differs: Literal["nodes", "here", ""] = "nodes" if len(values) > 1 else ""
        if not differs and value is not None and value != values[0][0]:
            differs = "here"
        compared_facts.append(HostFact(name, values, value, differs))
    return compared_facts


def warn_of_differences(facts: Sequence[HostFact]) -> Iterator[Finding]:
    """Yield a warning for each unexpected difference between hosts."""
    for fact in facts:
        description = "; ".join(
            f"{value} on {host_names}" if host_names != THIS_HOST else f"{value} here"
            for value, host_names in fact.hosts_by_value()
        )
        if fact.differs == "nodes":
            differing_hosts = fold_hosts(fact.values[-1][1])
            fix = f"--exclude={differing_hosts}, or --constraint with a feature of equal nodes (sinfo -o '%N %f')"
            yield warning("nodes differ", f"{fact.name}: {description}", fix)
        elif fact.differs == "here" and fact.name in FACTS_EXPECTED_EQUAL:
            fix = "the same script has another result on nodes: see modules, setup and python in the site file"
            yield warning("not as here", f"{fact.name}: {description}", fix)


def summarize_measurements(nodes: Sequence[NodeReport], local_report: NodeReport | None) -> list[tuple[str, str, str]]:
    """Return the name of each measurement, the range of values on the nodes, and the value on this host."""
    rows = []
    for name in nodes[0].measured if nodes else ():
        node_values = [node.measured[name] for node in nodes if name in node.measured]
        local_value = local_report.measured.get(name) if local_report else None
        label, unit = ("clock behind file server", "s") if name == "skew" else (f"free in {name}", "GiB")
        rows.append(
            (label, _format_range(node_values, unit), "" if local_value is None else _format_range([local_value], unit))
        )
    return rows


def _format_range(values: Sequence[float], unit: str) -> str:
    minimum, maximum = (f"{number:.1f}".replace("-0.0", "0.0") for number in (min(values), max(values)))
    return f"{minimum} {unit}" if minimum == maximum else f"{minimum} to {maximum} {unit}"
