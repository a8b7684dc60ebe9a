"""Detection of requests beyond the limits of a QoS or an account in Slurm, which would keep a job pending."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from hpcrun.errors import pluralize
from hpcrun.frozen import frozen
from hpcrun.paths import user_name
from hpcrun.resources import parse_memory, parse_time
from hpcrun.schedulers.slurm_limits import QUERY_TIMEOUT_SECONDS, Obstacle
from hpcrun.schedulers.slurm_partitions import find_partition
from hpcrun.sites.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hpcrun.resources import Resources
    from hpcrun.schedulers.slurm_client import SlurmClient
    from hpcrun.schedulers.slurm_partitions import SlurmPartition

    Limit = tuple[str, str]  # the column of sacctmgr(1), and the resource (TRES); no resource for MaxWall

_TOTAL_COLUMNS = {
    "MaxTRES": "",
    "MaxTRESPU": " for all jobs of a user",
    "MaxTRESPA": " for all jobs of an account",
    "GrpTRES": " for all its jobs",
}
"""Columns of sacctmgr(1) with limits of the total resources, and the jobs to which the limit applies."""

_ACCOUNT_COLUMNS = ("MaxWall", "MaxTRES", "MaxTRESPerNode", "MaxTRESMins", "GrpTRES")
_QOS_COLUMNS = (*_ACCOUNT_COLUMNS, "MaxTRESPU", "MaxTRESPA", "MinTRES")
_SHOW_COMMAND = ("sacctmgr", "--noheader", "--parsable2", "show")
_ENFORCES_LIMITS = re.compile(r"^AccountingStorageEnforce\s*=.*\b(?:limits|safe|all)\b", re.MULTILINE)
_VALUE = re.compile(r"\d+[KMGT]?")
_NOUNS = {"node": "node", "cpu": "core", "gres/gpu": "GPU"}


@frozen
class Policies:
    """Limits in Slurm's accounting: rows of sacctmgr(1) for all QoS, and for this user's accounts."""

    qos: list[list[str]]
    accounts: list[list[str]]


def query_policies(slurm: SlurmClient, *, timeout: float = QUERY_TIMEOUT_SECONDS) -> Policies:
    """Query the limits of QoS and accounts; they are empty without accounting, or if Slurm does not answer.

    Args:
        slurm: The client of the Slurm cluster.
        timeout: Timeout of each query in seconds.
    """
    qos_columns, account_columns = ",".join(_QOS_COLUMNS), ",".join(_ACCOUNT_COLUMNS)
    show_qos = (*_SHOW_COMMAND, "qos", f"format=Name,Flags,{qos_columns}")
    show_accounts = (
        *_SHOW_COMMAND,
        "assoc",
        f"user={user_name()}",
        f"format=Account,Partition,DefaultQOS,QOS,{account_columns}",
    )
    with ThreadPoolExecutor(1) as pool:
        qos = pool.submit(slurm.query_table, show_qos, 2 + len(_QOS_COLUMNS), timeout=timeout)
        accounts = slurm.query_table(show_accounts, 4 + len(_ACCOUNT_COLUMNS), timeout=timeout)
        return Policies(qos.result() or [], accounts or [])


def are_limits_enforced(slurm: SlurmClient, *, timeout: float = QUERY_TIMEOUT_SECONDS) -> bool:
    """Return whether Slurm enforces the limits of QoS and accounts, so that jobs beyond them stay pending."""
    return bool(_ENFORCES_LIMITS.search(slurm.query(("scontrol", "show", "config"), timeout=timeout).text or ""))


def find_obstacles(resources: Resources, partitions: Sequence[SlurmPartition], policies: Policies) -> list[Obstacle]:
    """Return the limits of QoS and accounts that a job exceeds even if no other job runs.

    Args:
        resources: The resources that the job requests.
        partitions: All partitions of the Slurm cluster.
        policies: The limits of all QoS and of this user's accounts.
    """
    limits = _select_limits(resources, partitions, policies)
    obstacles = (
        one for limit, (owner, value) in limits.items() for one in _compare_with_limit(resources, limit, owner, value)
    )
    return list(dict.fromkeys(obstacles))


def _select_limits(
    resources: Resources, partitions: Sequence[SlurmPartition], policies: Policies
) -> dict[Limit, tuple[str, str]]:
    """Return the limits that apply to a job, each with the QoS or account that sets it.

    Slurm takes each limit from the partition's QoS, else from the job's QoS, else from the account.
    """
    if "," in (resources.partition or ""):  # each partition may have its own QoS
        return {}
    partition = find_partition(partitions, resources.partition)
    account_rows = [row for row in policies.accounts if row[1] in ("", partition.name if partition else "")]
    if resources.account:
        account_rows = [row for row in account_rows if row[0] == resources.account.lower()]
    default_qos = {default or ("" if "," in names else names) for _, _, default, names, *_ in account_rows}
    job_qos = resources.qos or (default_qos.pop() if len(default_qos) == 1 else "")
    qos_rows = {row[0]: row for row in policies.qos}
    qos_order = [partition.properties.get("QoS", "") if partition else "", job_qos]
    if "OverPartQOS" in qos_rows.get(job_qos, ["", ""])[1]:
        qos_order.reverse()
    limits: dict[Limit, tuple[str, str]] = {}
    for owner in (one for one in qos_order if one in qos_rows):
        for limit, value in _parse_row(_QOS_COLUMNS, qos_rows[owner][2:]):
            limits.setdefault(limit, (f"QoS {owner}", value))
    if len(account_rows) == 1:
        for limit, value in _parse_row(_ACCOUNT_COLUMNS, account_rows[0][4:]):
            limits.setdefault(limit, (f"account {account_rows[0][0]}", value))
    return limits


def _parse_row(columns: Sequence[str], values: Sequence[str]) -> Iterator[tuple[Limit, str]]:
    """Yield the limits in a row of sacctmgr, such as ``("MaxTRES", "node"), "2"`` for ``cpu=8,node=2``."""
    for column, text in zip(columns, values, strict=True):
        if column == "MaxWall" and text:
            yield (column, ""), text
        for name, equals, value in (pair.partition("=") for pair in text.split(",")):
            if equals and _VALUE.fullmatch(value):
                yield (column, name), value


def _compare_with_limit(resources: Resources, limit: Limit, owner: str, value: str) -> Iterator[Obstacle]:
    """Yield an obstacle if the request of a job exceeds a limit."""
    column, resource = limit
    resource = "gres/gpu" if resource == f"gres/gpu:{resources.gpu_type}" else resource
    owner_text = owner + _TOTAL_COLUMNS.get(column, "")
    if column == "MaxTRESMins":
        yield from _compare_minutes(resources, resource, owner_text, value)
    elif column in _TOTAL_COLUMNS and resource == "mem":
        yield from _compare_memory(resources, owner_text, value)
    elif limit_fields := _limit_fields(column, resource, value, resources):
        limits = Limits(**limit_fields)  # type: ignore[arg-type]
        for fault, hint in limits.find_violations(resources, owner_text):
            yield Obstacle(fault.removesuffix(" a job"), hint, is_certain=False)


def _limit_fields(column: str, resource: str, value: str, resources: Resources) -> Mapping[str, str | int]:
    """Return a limit as a keyword argument of `Limits`; empty if the limit is not checked."""
    if column == "MaxWall":
        return {"max_time": value}
    if column == "MaxTRESPerNode" and resource == "mem":
        return {"mem_per_node": value}
    if not value.isdecimal():
        return {}
    fields_by_column = {
        column: {"node": "max_nodes", "cpu": "max_cpus", "gres/gpu": "max_gpus"} for column in _TOTAL_COLUMNS
    }
    fields_by_column["MaxTRESPerNode"] = {"cpu": "cpus_per_node", "gres/gpu": "gpus_per_node"}
    fields_by_column["MinTRES"] = {"node": "min_nodes"} if resources.nodes else {}
    field = fields_by_column[column].get(resource)
    return {field: int(value)} if field and (int(value) or "gpus" in field) else {}


def _compare_minutes(resources: Resources, resource: str, owner_text: str, value: str) -> Iterator[Obstacle]:
    """Yield an obstacle if the requested resources times the time limit exceed a limit, such as in node-minutes."""
    nodes = resources.nodes or 1
    counts = {
        "node": nodes,
        "cpu": resources.ranks * (resources.cpus_per_task or 1),
        "gres/gpu": nodes * resources.gpus,
    }
    count = counts.get(resource, 0)
    if count and value.isdecimal() and resources.time and count * parse_time(resources.time) > int(value) * 60:
        fault = f"--time={resources.time} with {pluralize(count, _NOUNS[resource])} is more than {owner_text} allows: "
        hint = f"give --time={int(value) // count} or less, or request less" if int(value) >= count else "request less"
        yield Obstacle(f"{fault}{value} {_NOUNS[resource]}-minutes", hint, is_certain=False)


def _compare_memory(resources: Resources, owner_text: str, value: str) -> Iterator[Obstacle]:
    memory, memory_option = resources.memory or (0, "")
    nodes = resources.nodes or 1
    if memory * nodes > parse_memory(value):
        fault = f"{memory_option} on {pluralize(nodes, 'node')} is more than {owner_text} allows: {value}"
        yield Obstacle(fault, "request less memory, or fewer nodes", is_certain=False)
