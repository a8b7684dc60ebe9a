"""Nodes that do not run jobs, with Slurm's reason: down, drained, or reserved."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.nodelist import expand_nodelist, fold_hosts

if TYPE_CHECKING:
    from collections.abc import Collection

    from hpcrun.schedulers.slurm_client import SlurmClient

TIMEOUT_SECONDS = 10.0
_REASONS = ("sinfo", "--noheader", "--list-reasons", "--format=%N|%T|%u|%H|%E")
_STATES = ("sinfo", "--noheader", "--Node", "--format=%N|%T")
_DOWN = re.compile("down|drain|fail|unknown")
_RESERVATIONS = ("scontrol", "--oneliner", "show", "reservation")
_PAIR = re.compile(r"(\w+)=(\S*)")


@dataclass(frozen=True)
class Reservation:
    """A reservation.

    Attributes:
        name: Its name.
        start: When it begins.
        end: When it ends.
        nodes: Its nodes.
        flags: Its flags, such as MAINT.
        holders: Who may use it.
    """

    name: str
    start: str
    end: str
    nodes: frozenset[str]
    flags: str
    holders: str

    def starts_before(self, moment: float) -> bool:
        """Return whether it begins before a time, given in s since 1970; true for a time in an unknown format."""
        try:
            return datetime.fromisoformat(self.start).timestamp() < moment
        except ValueError:
            return True

    @property
    def sentence(self) -> str:
        """The reservation in a sentence."""
        flags = f", flags {self.flags}" if self.flags else ""
        holders = f", for {self.holders}" if self.holders else ""
        return f"{fold_hosts(self.nodes)} reserved: {self.name} from {self.start} to {self.end}{holders}{flags}"


def find_unavailable(
    slurm: SlurmClient, nodelist: str = "", *, seconds: float = inf, timeout: float = TIMEOUT_SECONDS
) -> list[str]:
    """Return a sentence about each set of nodes that is down, drained or reserved, in Slurm's words.

    Args:
        slurm: The commands of the Slurm.
        nodelist: The nodes of interest; all nodes if empty.
        seconds: How far ahead a reservation may begin: the time limit of a job.
        timeout: In seconds, of each query.
    """
    wanted = _expand(nodelist)
    found = []
    for names, state, user, since, reason in slurm.query_table(_REASONS, 5, timeout=timeout) or []:
        if nodes := _common(names, wanted):
            found.append(f"{nodes} {state.rstrip('*~#$@+')}: {reason} ({user}, {since})")
    latest = time.time() + seconds
    reservations = (
        one for one in query_reservations(slurm, timeout=timeout) if not wanted or one.nodes.intersection(wanted)
    )
    return [*found, *(one.sentence for one in reservations if one.starts_before(latest))]


def find_down(slurm: SlurmClient, nodes: Collection[str]) -> list[str]:
    """Return those of some nodes that are down or that Slurm has taken out of service."""
    table = (*_STATES, f"--nodes={','.join(nodes)}")
    rows = slurm.query_table(table, 2, timeout=TIMEOUT_SECONDS) or []
    return sorted({name for name, state in rows if name in nodes and _DOWN.match(state)})


def query_reservations(slurm: SlurmClient, *, timeout: float = TIMEOUT_SECONDS) -> list[Reservation]:
    """Return all reservations, also those that begin later."""
    text = slurm.query(_RESERVATIONS, timeout=timeout).text
    rows = [dict(_PAIR.findall(line)) for line in text.splitlines() if line.startswith("ReservationName=")]
    return [
        Reservation(
            row["ReservationName"], row.get("StartTime", ""), row.get("EndTime", ""),
            frozenset(_expand(_value_or_empty(row.get("Nodes")))), _value_or_empty(row.get("Flags")),
            ", ".join(filter(None, (_value_or_empty(row.get(key)) for key in ("Users", "Groups", "Accounts")))),
        )
        for row in rows
    ]  # fmt: skip


def _value_or_empty(value: str | None) -> str:
    return "" if value in {None, "(null)"} else str(value)


def _expand(nodelist: str) -> list[str]:
    try:
        return expand_nodelist(nodelist) if nodelist else []
    except HpcrunError:
        return []


def _common(nodelist: str, wanted: Collection[str]) -> str:
    """Return those of a list of nodes that are wanted, as a node list."""
    nodes = [name for name in _expand(nodelist) if not wanted or name in wanted]
    return fold_hosts(nodes) if nodes else ""
