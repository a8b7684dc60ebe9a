"""The limits of a partition, a QoS or a whole site, and the check of a job's resources against them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field, fields
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, ClassVar

from hpcrun.errors import pluralize
from hpcrun.field_checks import FieldError, check_fields, require_not_negative, require_one_line, require_positive
from hpcrun.frozen import frozen
from hpcrun.resources import Resources, parse_memory, parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FORBID_UNKNOWN_KEYS = {"extra": "forbid"}  # pydantic: unknown keys are errors


def _check_node_count(text: str) -> None:
    if not text.isdecimal() or not int(text):
        raise ValueError("must be a number of nodes, at least 1, in quotes")


@frozen(kw_only=True)
class Limits:
    """Limits on the jobs of a partition, QoS, constraint or account, or of the whole site."""

    __pydantic_config__: ClassVar = FORBID_UNKNOWN_KEYS

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
    """Numbers of GPUs per node that jobs may request; default: any number."""
    cpus_per_node: int | None = None
    """Number of CPU cores of each node."""
    mem_per_node: str | int | None = None
    """Memory of each node, in MiB or with a suffix K, M, G or T."""
    account_required: bool | None = None
    """Whether every job must set an account."""
    account_pattern: str | None = None
    """Pattern of valid account names, in which * and ? are wildcards, such as *_g."""
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

    @property
    def declared_limits(self) -> set[str]:
        """The names of the limits that this table sets."""
        return {one.name for one in fields(Limits) if getattr(self, one.name) not in (None, (), {})}

    def find_violations(
        self, resources: Resources, partition_or_site: str, origins: Mapping[str, str] | None = None
    ) -> list[tuple[str, str]]:
        """Return a message about each violated limit, and a hint.

        Args:
            resources: The requested resources.
            partition_or_site: The name of the partition or site that sets these limits, for the message.
            origins: The QoS, constraint or account that sets a limit instead, by name of the limit.
        """
        source, violations = defaultdict(lambda: partition_or_site, origins or {}), []
        if self.gpus_per_node == 0 and resources.gpus:
            fault = f"--gpus-per-node={resources.gpus_per_node}: {source['gpus_per_node']} has no GPUs"
            violations.append((fault, "leave it out, or give --no-gpu"))
        violations += [
            (f"{option} is more than {source[name]} allows: {allowed_values}", hint)
            for name, option, given, limit, allowed_values, hint in self._compare_with_limits(resources)
            if given is not None and limit is not None and given > limit
        ]
        nodes, gpus, account = resources.nodes or 1, resources.gpus, resources.account
        if self.min_nodes and nodes < self.min_nodes:
            fault = f"--nodes={nodes} is less than {source['min_nodes']} allows: {pluralize(self.min_nodes, 'node')}"
            violations.append((fault, f"give --nodes={self.min_nodes} or more"))
        min_seconds, requested_seconds = (_parse_if_set(parse_time, one) for one in (self.min_time, resources.time))
        if min_seconds is not None and requested_seconds is not None and requested_seconds < min_seconds:
            allowed_values = f"{source['min_time']} allows: a time limit of {_format_time_limit(self.min_time)}"
            violations.append(
                (f"--time={resources.time} is less than {allowed_values}", f"give --time={self.min_time} or more")
            )
        if self.gpus_allowed and gpus and gpus not in self.gpus_allowed:
            allowed_values = " or ".join(map(str, self.gpus_allowed))
            fault = f"--gpus-per-node={gpus}: {source['gpus_allowed']} allows {allowed_values}"
            violations.append((fault, f"give --gpus-per-node={allowed_values}"))
        if self.time_required and resources.time is None:
            fault = f"{source['time_required']} requires a time limit, but none was given"
            violations.append((fault, "give --time=HH:MM:SS"))
        if self.account_required and not account:
            fault = f"{source['account_required']} requires an account, but none was given"
            violations.append((fault, "give --account=NAME"))
        elif not self.allows_account(account):
            fault = f"{source['account_pattern']} requires an account like {self.account_pattern}, not {account}"
            violations.append((fault, "give --account; `sacctmgr show associations user=$USER` lists your accounts"))
        return violations

    def allows_account(self, account: str | None) -> bool:
        """Return whether an account, if there is one, has a valid name."""
        return not account or fnmatchcase(account.lower(), (self.account_pattern or "*").lower())

    def max_time_for(self, nodes: int) -> str | int | None:
        """Return the maximum time limit of a job with a number of nodes."""
        limits_by_nodes = sorted((int(max_nodes), time) for max_nodes, time in self.max_time_by_nodes.items())
        return next((time for max_nodes, time in limits_by_nodes if nodes <= max_nodes), self.max_time)

    def _compare_with_limits(self, resources: Resources) -> list[tuple[str, str, float | None, float | None, str, str]]:
        """Return for each limit: name, option, requested value, maximum, maximum as text, and hint."""
        ranks_per_node = -(-resources.ntasks // resources.nodes) if resources.ntasks and resources.nodes else 1
        ranks = resources.ntasks_per_node or ranks_per_node
        cores = ranks * (resources.cpus_per_task or 1)
        cores_per_rank = pluralize(resources.cpus_per_task or 1, "core")
        nodes = resources.nodes
        if nodes is None and self.cpus_per_node:
            nodes = -(-resources.ranks * (resources.cpus_per_task or 1) // self.cpus_per_node)
        max_cores_per_rank = (self.cpus_per_node or 0) // ranks
        max_ranks = (self.max_nodes or 0) * (self.cpus_per_node or 0) // (resources.cpus_per_task or 1)
        memory, memory_option = resources.memory or (None, "")
        max_time = self.max_time_for(nodes or 1)
        depends_on_nodes = self.max_time_by_nodes and max_time != self.max_time
        return [
            (
                "max_nodes",
                f"--nodes={nodes}" if resources.nodes else f"{resources.ranks} ranks on {nodes} nodes",
                nodes,
                self.max_nodes,
                pluralize(self.max_nodes, "node"),
                f"give --nodes={self.max_nodes} or less" if resources.nodes else f"request at most {max_ranks} ranks",
            ),
            (
                "max_time_by_nodes" if depends_on_nodes else "max_time",
                f"--time={resources.time}",
                _parse_if_set(parse_time, resources.time),
                _parse_if_set(parse_time, max_time),
                f"a time limit of {_format_time_limit(max_time)}"
                + (f" for {pluralize(nodes or 1, 'node')}" if depends_on_nodes else ""),
                f"give --time={max_time} or less",
            ),
            (
                "gpus_per_node",
                f"--gpus-per-node={resources.gpus_per_node}",
                resources.gpus,
                self.gpus_per_node or None,  # a limit of 0 GPUs has a separate message
                f"{pluralize(self.gpus_per_node, 'GPU')} a node",
                f"give --gpus-per-node={self.gpus_per_node} or less",
            ),
            (
                "cpus_per_node",
                f"{pluralize(ranks, 'rank')} a node with {cores_per_rank} each",
                cores,
                self.cpus_per_node,
                f"{pluralize(self.cpus_per_node, 'core')} a node",
                "give a smaller --ntasks-per-node, or more --nodes"
                if max_cores_per_rank == 0
                else f"give --cpus-per-task={max_cores_per_rank} or less"
                + (", or fewer ranks a node" if ranks > 1 else ""),
            ),
            (
                "mem_per_node",
                memory_option,
                memory,
                _parse_if_set(parse_memory, self.mem_per_node),
                f"{self.mem_per_node} a node",
                f"give --mem={self.mem_per_node} or less"
                if memory_option.startswith("--mem=")
                else "request less memory for each core or GPU, or fewer of them",
            ),
            (
                "max_gpus",
                f"{(nodes or 1) * resources.gpus} GPUs in all",
                (nodes or 1) * resources.gpus,
                self.max_gpus,
                f"{pluralize(self.max_gpus, 'GPU')} a job",
                "give a smaller --gpus-per-node or --nodes",
            ),
            (
                "max_cpus",
                f"{pluralize(resources.ranks, 'rank')} with {cores_per_rank} each",
                resources.ranks * (resources.cpus_per_task or 1),
                self.max_cpus,
                f"{pluralize(self.max_cpus, 'core')} a job",
                "give fewer ranks, or a smaller --cpus-per-task",
            ),
        ]


def _parse_if_set(parse: Callable[[str | int], float], text: str | int | None) -> float | None:
    return None if text is None else parse(text)


def _format_time_limit(time: str | int | None) -> str:
    return pluralize(int(time), "minute") if time is not None and str(time).isdecimal() else str(time)
