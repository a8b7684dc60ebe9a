"""The limits of a partition, a QoS or a whole site, and the check of a job's resources against them."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, ClassVar

from hpcrun.resources import (
    FieldError,
    Resources,
    check_fields,
    parse_memory,
    parse_time,
    require_not_negative,
    require_one_line,
    require_positive,
)

if TYPE_CHECKING:
    from collections.abc import Callable

FORBID = {"extra": "forbid"}  # pydantic: unknown keys are errors


def _check_node_count(text: str) -> None:
    if not text.isdecimal() or not int(text):
        raise ValueError("must be a number of nodes, at least 1, in quotes")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a partition or of the whole site."""

    __pydantic_config__: ClassVar = FORBID

    min_nodes: int | None = None
    """Minimum number of nodes of a job."""
    max_nodes: int | None = None
    """Maximum number of nodes of a job."""
    max_gpus: int | None = None
    """Maximum number of GPUs of a job."""
    max_cpus: int | None = None
    """Maximum number of CPU cores of a job."""
    min_time: str | int | None = None
    """Minimum time limit, in any of Slurm's formats."""
    max_time: str | int | None = None
    """Maximum time limit, in any of Slurm's formats."""
    max_time_by_nodes: dict[str, str | int] = field(default_factory=dict)
    """Maximum time limit by number of nodes, as in {"91" = "2:00:00", "183" = "6:00:00"} for up to 91 and 183 nodes."""
    time_required: bool | None = None
    """Whether every job must set a time limit."""
    gpus_per_node: int | None = None
    """Number of GPUs of each node; 0 refuses jobs with GPUs."""
    gpus_allowed: tuple[int, ...] = ()
    """Numbers of GPUs per node that jobs may request; any number by default."""
    cpus_per_node: int | None = None
    """Number of CPU cores of each node."""
    mem_per_node: str | int | None = None
    """Memory of each node, in MiB or with K, M, G, T."""
    account_required: bool | None = None
    """Whether every job must set an account."""
    account_pattern: str | None = None
    """Pattern of valid account names (with * and ?), such as *_g."""
    exclusive: bool | None = None
    """Whether jobs get, and are charged for, whole nodes (Slurm's OverSubscribe=EXCLUSIVE)."""

    def __post_init__(self) -> None:
        counts = dict.fromkeys(["min_nodes", "max_nodes", "max_cpus", "cpus_per_node"], require_positive)
        sizes = {
            "gpus_per_node": require_not_negative,
            "max_gpus": require_not_negative,
            "gpus_allowed": require_positive,
            "mem_per_node": parse_memory,
        }
        times = {"min_time": parse_time, "max_time": parse_time, "max_time_by_nodes": _check_node_count}
        check_fields(self, {**counts, **sizes, **times, "account_pattern": require_one_line})
        for nodes, time in self.max_time_by_nodes.items():
            try:
                parse_time(time)
            except ValueError as error:
                raise FieldError(nodes, time, str(error), ("max_time_by_nodes",)) from None

    def find_violations(self, resources: Resources, where: str) -> list[tuple[str, str]]:
        """Return the violations of the limits, each with a hint.

        Args:
            resources: The requested resources.
            where: The partition, QoS or site with these limits, for the message.
        """
        found = []
        if self.gpus_per_node == 0 and resources.gpus:
            fault = f"--gpus-per-node={resources.gpus_per_node}: {where} has no GPUs"
            found.append((fault, "leave it out, or give --no-gpu"))
        found += [
            (f"{option} is more than {where} allows: {allowed}", hint)
            for option, given, limit, allowed, hint in self._compare_with_limits(resources)
            if given is not None and limit is not None and given > limit
        ]
        nodes, gpus, account = resources.nodes or 1, resources.gpus, resources.account
        if self.min_nodes and nodes < self.min_nodes:
            fault = f"--nodes={nodes} is less than {where} allows: {self.min_nodes} nodes"
            found.append((fault, f"give --nodes={self.min_nodes} or more"))
        shortest, time = (_parse_optional(parse_time, one) for one in (self.min_time, resources.time))
        if shortest is not None and time is not None and time < shortest:
            fault = f"--time={resources.time} is less than {where} allows: a time limit of {_with_unit(self.min_time)}"
            found.append((fault, f"give --time={self.min_time} or more"))
        if self.gpus_allowed and gpus and gpus not in self.gpus_allowed:
            allowed = " or ".join(map(str, self.gpus_allowed))
            found.append((f"--gpus-per-node={gpus}: {where} allows {allowed}", f"give --gpus-per-node={allowed}"))
        if self.time_required and resources.time is None:
            found.append((f"{where} requires a time limit, but none was given", "give --time=HH:MM:SS"))
        if self.account_required and not account:
            found.append((f"{where} requires an account, but none was given", "give --account=NAME"))
        elif account and not fnmatchcase(account.lower(), (self.account_pattern or "*").lower()):
            fault = f"{where} requires an account like {self.account_pattern}, not {account}"
            found.append(
                (fault, "give --account with your project's, as `sacctmgr show associations user=$USER` lists it")
            )
        return found

    def max_time_for(self, nodes: int) -> str | int | None:
        """Return the maximum time limit of a job with this number of nodes."""
        steps = sorted((int(most), time) for most, time in self.max_time_by_nodes.items())
        return next((time for most, time in steps if nodes <= most), self.max_time)

    def _compare_with_limits(self, resources: Resources) -> list[tuple[str, float | None, float | None, str, str]]:
        """Return each option with its requested and its maximum value, the limit as text, and a hint."""
        spread = -(-resources.ntasks // resources.nodes) if resources.ntasks and resources.nodes else 1
        ranks = resources.ntasks_per_node or spread
        cores = ranks * (resources.cpus_per_task or 1)
        nodes = resources.nodes
        if nodes is None and self.cpus_per_node:
            nodes = -(-resources.ranks * (resources.cpus_per_task or 1) // self.cpus_per_node)
        memory, memory_option = resources.memory or (None, "")
        longest = self.max_time_for(nodes or 1)
        return [
            (
                f"--nodes={nodes}",
                nodes,
                self.max_nodes,
                f"{self.max_nodes} node" + "s" * (self.max_nodes != 1),
                f"give --nodes={self.max_nodes} or less",
            ),
            (
                f"--time={resources.time}",
                _parse_optional(parse_time, resources.time),
                _parse_optional(parse_time, longest),
                f"a time limit of {_with_unit(longest)}"
                + (f" for {nodes or 1} nodes" if self.max_time_by_nodes and longest != self.max_time else ""),
                f"give --time={longest} or less",
            ),
            (
                f"--gpus-per-node={resources.gpus_per_node}",
                resources.gpus,
                self.gpus_per_node or None,  # no GPUs at all has its own message
                f"{self.gpus_per_node} GPUs a node",
                f"give --gpus-per-node={self.gpus_per_node} or less",
            ),
            (
                f"{ranks} ranks a node with {resources.cpus_per_task or 1} cores each",
                cores,
                self.cpus_per_node,
                f"{self.cpus_per_node} cores a node",
                "give a smaller --ntasks-per-node or --cpus-per-task, or more --nodes",
            ),
            (
                memory_option,
                memory,
                _parse_optional(parse_memory, self.mem_per_node),
                f"{self.mem_per_node} a node",
                f"give --mem={self.mem_per_node} or less",
            ),
            (
                f"{(nodes or 1) * resources.gpus} GPUs in all",
                (nodes or 1) * resources.gpus,
                self.max_gpus,
                f"{self.max_gpus} GPUs a job",
                "give a smaller --gpus-per-node or --nodes",
            ),
            (
                f"{resources.ranks} ranks with {resources.cpus_per_task or 1} cores each",
                resources.ranks * (resources.cpus_per_task or 1),
                self.max_cpus,
                f"{self.max_cpus} cores a job",
                "give fewer ranks, or a smaller --cpus-per-task",
            ),
        ]


def _parse_optional(read: Callable[[str | int], float], text: str | int | None) -> float | None:
    return None if text is None else read(text)


def _with_unit(time: str | int | None) -> str:
    return f"{time} minutes" if str(time).isdecimal() else str(time)
