"""Detection of nodes that do not run jobs, because they are down, drained or reserved."""

from __future__ import annotations

import re
import time
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen
from hpcrun.nodelist import expand_nodelist, fold_hosts

if TYPE_CHECKING:
    from collections.abc import Collection

    from hpcrun.schedulers.slurm_client import SlurmClient

TIMEOUT_SECONDS = 10.0
_LIST_REASONS = ("sinfo", "--noheader", "--list-reasons", "--format=%N|%T|%u|%H|%E")
_LIST_STATES = ("sinfo", "--noheader", "--Node", "--format=%N|%T")
_UNUSABLE_STATES = re.compile("down|drain|fail|unknown")
_SHOW_RESERVATIONS = ("scontrol", "--oneliner", "show", "reservation")
_PAIR = re.compile(r"(\w+)=(\S*)")


@frozen
class Reservation:
    """A reservation of nodes in Slurm.

    Attributes:
        name: The name of the reservation.
        start: The start time, in Slurm's format.
        end: The end time, in Slurm's format.
        nodes: The names of the reserved nodes.
        flags: The flags of the reservation, such as MAINT.
        holders: The users, groups and accounts that may use the reservation.
    """

    name: str
    start: str
    end: str
    nodes: frozenset[str]
    flags: str
    holders: str

    def starts_before(self, timestamp: float) -> bool:
        """Return whether the reservation starts before a time in s since 1970; True for an unknown format."""
        try:
            return datetime.fromisoformat(self.start).timestamp() < timestamp
        except ValueError:
            return True

    @property
    def sentence(self) -> str:
        """A sentence about the reservation."""
        flags_text = f", flags {self.flags}" if self.flags else ""
        holders_text = f", for {self.holders}" if self.holders else ""
        return (
            f"{fold_hosts(self.nodes)} reserved: {self.name} from {self.start} to {self.end}{holders_text}{flags_text}"
        )


def find_unavailable_nodes(
    slurm: SlurmClient, nodelist: str = "", *, seconds: float = inf, timeout: float = TIMEOUT_SECONDS
) -> list[str]:
    """Return a sentence about each group of nodes that is down, drained or reserved, with Slurm's reason.

    Args:
        slurm: The client of the Slurm cluster.
        nodelist: A list of nodes in Slurm's format; empty: all nodes.
        seconds: Time in seconds from now, such as a job's time limit; reservations that start later are omitted.
        timeout: Timeout of each query in seconds.
    """
    names_to_check = _expand(nodelist)
    sentences = []
    for names, state, user, since, reason in slurm.query_table(_LIST_REASONS, 5, timeout=timeout) or []:
        if nodes := _select_nodes(names, names_to_check):
            sentences.append(f"{nodes} {state.rstrip('*~#$@+')}: {reason} ({user}, {since})")
    latest_start = time.time() + seconds
    reservations = (
        one
        for one in query_reservations(slurm, timeout=timeout)
        if not names_to_check or one.nodes.intersection(names_to_check)
    )
    return [*sentences, *(one.sentence for one in reservations if one.starts_before(latest_start))]


def find_unusable_nodes(slurm: SlurmClient, nodes: Collection[str]) -> list[str]:
    """Return the given nodes that are down, drained or failed."""
    command = (*_LIST_STATES, f"--nodes={','.join(nodes)}")
    rows = slurm.query_table(command, 2, timeout=TIMEOUT_SECONDS) or []
    return sorted({name for name, state in rows if name in nodes and _UNUSABLE_STATES.match(state)})


def query_reservations(slurm: SlurmClient, *, timeout: float = TIMEOUT_SECONDS) -> list[Reservation]:
    """Return all current and future reservations."""
    text = slurm.query(_SHOW_RESERVATIONS, timeout=timeout).text
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


def _select_nodes(nodelist: str, names_to_check: Collection[str]) -> str:
    """Return the nodes of a node list that are in a set of names; all nodes if the set is empty."""
    nodes = [name for name in _expand(nodelist) if not names_to_check or name in names_to_check]
    return fold_hosts(nodes) if nodes else ""
