"""How hosts differ: equal values are told once, others with the hosts that have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hpcrun.finding import warning
from hpcrun.nodelist import fold

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpcrun.finding import Finding

HERE = "here"
"""The host that the doctor was called on."""

SAME_AS_HERE = ("Python", "hpcrun", "modules", "MPI library", "XLA_FLAGS")
"""What the job's own script makes, and should be the same here and on nodes (mpirun adds to LD_LIBRARY_PATH)."""


@dataclass(frozen=True)
class Fact:
    """One thing that is known of several hosts.

    Attributes:
        name: What it is.
        values: Each value, with the nodes that have it; the most frequent first.
        here: Its value on the host that the doctor was called on; None where that was not asked.
        differs: ``nodes`` where nodes differ, ``here`` where all nodes do from here; empty where nothing does.
    """

    name: str
    values: tuple[tuple[str, tuple[str, ...]], ...]
    here: str | None
    differs: Literal["nodes", "here", ""]

    def lines(self) -> list[tuple[str, str]]:
        """Return the values, each with where it is so: nodes as Slurm writes them."""
        if not self.differs:
            return [(self.values[0][0], "everywhere" if self.here is not None else "all nodes")]
        lines = [(value, [fold(hosts)]) for value, hosts in self.values]
        for value, where in lines:
            if value == self.here:
                where.append(HERE)
                break
        else:
            lines += [(self.here, [HERE])] if self.here is not None else []
        return [(value or "(none)", " and ".join(where)) for value, where in lines]


def compare(nodes: Sequence[dict[str, Any]], here: dict[str, Any]) -> list[Fact]:
    """Return what is known of hosts, in the order in which the first tells it; what is empty everywhere is left out.

    Args:
        nodes: What `hpcrun.doctor.node_probe` told of each node.
        here: What it told of this host; may be empty.
    """
    own = here.get("facts", {})
    facts = []
    for name in dict.fromkeys(key for one in (*nodes, here) for key in one.get("facts", {}) if nodes):
        having: dict[str, list[str]] = {}
        for node in nodes:
            having.setdefault(str(node["facts"].get(name, "")), []).append(node["host"])
        value = str(own.get(name, "")) if own else None
        if not any(having) and not value:
            continue
        values = tuple(sorted(((told, tuple(hosts)) for told, hosts in having.items()), key=lambda one: -len(one[1])))
        differs: Literal["nodes", "here", ""] = "nodes" if len(values) > 1 else ""
        if not differs and value is not None and value != values[0][0]:
            differs = "here"
        facts.append(Fact(name, values, value, differs))
    return facts


def differences(facts: Sequence[Fact]) -> Iterator[Finding]:
    """Yield a warning for each difference that should not be."""
    for fact in facts:
        told = "; ".join(f"{value} on {where}" if where != HERE else f"{value} here" for value, where in fact.lines())
        if fact.differs == "nodes":
            few = fold(fact.values[-1][1])
            fix = f"--exclude={few}, or --constraint with a feature that only like nodes have (sinfo -o '%N %f')"
            yield warning("nodes differ", f"{fact.name}: {told}", fix)
        elif fact.differs == "here" and fact.name in SAME_AS_HERE:
            fix = "the same script gives another result there: see modules, setup and python in the site file"
            yield warning("not as here", f"{fact.name}: {told}", fix)


def measured(nodes: Sequence[dict[str, Any]], here: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return what was measured, which differs a little anyway: its name, from least to most on nodes, and here."""
    found = []
    for name in nodes[0]["measured"] if nodes else ():
        numbers = [node["measured"][name] for node in nodes if name in node["measured"]]
        own = here.get("measured", {}).get(name)
        label, unit = ("clock behind the file server's", "s") if name == "skew" else (f"free in {name}", "GiB")
        found.append((label, _span(numbers, unit), "" if own is None else _span([own], unit)))
    return found


def _span(numbers: Sequence[float], unit: str) -> str:
    least, most = (f"{number:.1f}".replace("-0.0", "0.0") for number in (min(numbers), max(numbers)))
    return f"{least} {unit}" if least == most else f"{least} to {most} {unit}"
