"""Differences between hosts: common values once, others with their hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hpcrun.finding import warning
from hpcrun.nodelist import fold_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpcrun.doctor.node_report import NodeReport
    from hpcrun.finding import Finding

THIS_HOST = "here"
"""The label of the host that runs the doctor."""

EXPECTED_EQUAL = ("Python", "hpcrun", "modules", "MPI library", "XLA_FLAGS")
"""Facts that the job's script determines, so they should be equal here and on nodes (unlike LD_LIBRARY_PATH)."""


@dataclass(frozen=True)
class HostFact:
    """A fact of several hosts.

    Attributes:
        name: Its name.
        values: Each value with its nodes, the most frequent first.
        this_host: Its value on the host that runs the doctor; None if unknown.
        differs: ``nodes`` if nodes differ, ``here`` if all nodes differ from this host; empty if all are equal.
    """

    name: str
    values: tuple[tuple[str, tuple[str, ...]], ...]
    this_host: str | None
    differs: Literal["nodes", "here", ""]

    def hosts_by_value(self) -> list[tuple[str, str]]:
        """Return each value with its hosts, as a Slurm node list."""
        if not self.differs:
            return [(self.values[0][0], "everywhere" if self.this_host is not None else "all nodes")]
        lines = [(value, [fold_hosts(hosts)]) for value, hosts in self.values]
        for value, where in lines:
            if value == self.this_host:
                where.append(THIS_HOST)
                break
        else:
            lines += [(self.this_host, [THIS_HOST])] if self.this_host is not None else []
        return [(value or "(none)", " and ".join(where)) for value, where in lines]


def compare_hosts(nodes: Sequence[NodeReport], here: NodeReport | None) -> list[HostFact]:
    """Compare the facts of hosts, in the order of the first report; facts that are empty everywhere are omitted.

    Args:
        nodes: The report of `hpcrun.doctor.node_probe` on each node.
        here: Its report on this host, if any.
    """
    own = here.fact_texts if here else {}
    by_host = [(node.host, node.fact_texts) for node in nodes]
    facts = []
    for name in dict.fromkeys(key for known in (*(known for _, known in by_host), own) for key in known if nodes):
        hosts_by_value: dict[str, list[str]] = {}
        for host, known in by_host:
            hosts_by_value.setdefault(known.get(name, ""), []).append(host)
        value = own.get(name, "") if own else None
        if not any(hosts_by_value) and not value:
            continue
        values = tuple(
            sorted(((value, tuple(hosts)) for value, hosts in hosts_by_value.items()), key=lambda one: -len(one[1]))
        )
        differs: Literal["nodes", "here", ""] = "nodes" if len(values) > 1 else ""
        if not differs and value is not None and value != values[0][0]:
            differs = "here"
        facts.append(HostFact(name, values, value, differs))
    return facts


def warn_of_differences(facts: Sequence[HostFact]) -> Iterator[Finding]:
    """Yield a warning for each unexpected difference."""
    for fact in facts:
        description = "; ".join(
            f"{value} on {where}" if where != THIS_HOST else f"{value} here" for value, where in fact.hosts_by_value()
        )
        if fact.differs == "nodes":
            few = fold_hosts(fact.values[-1][1])
            fix = f"--exclude={few}, or --constraint with a feature that only like nodes have (sinfo -o '%N %f')"
            yield warning("nodes differ", f"{fact.name}: {description}", fix)
        elif fact.differs == "here" and fact.name in EXPECTED_EQUAL:
            fix = "the same script has another result on nodes: see modules, setup and python in the site file"
            yield warning("not as here", f"{fact.name}: {description}", fix)


def summarize_measurements(nodes: Sequence[NodeReport], here: NodeReport | None) -> list[tuple[str, str, str]]:
    """Return each measurement: its name, its range on the nodes, and its value on this host."""
    found = []
    for name in nodes[0].measured if nodes else ():
        numbers = [node.measured[name] for node in nodes if name in node.measured]
        own = here.measured.get(name) if here else None
        label, unit = ("clock behind the file server's", "s") if name == "skew" else (f"free in {name}", "GiB")
        found.append((label, _format_range(numbers, unit), "" if own is None else _format_range([own], unit)))
    return found


def _format_range(numbers: Sequence[float], unit: str) -> str:
    least, most = (f"{number:.1f}".replace("-0.0", "0.0") for number in (min(numbers), max(numbers)))
    return f"{least} {unit}" if least == most else f"{least} to {most} {unit}"
