"""Requests beyond the limits of a QoS or an account in Slurm's accounting, with which a job would stay pending."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcrun.errors import pluralize
from hpcrun.paths import user_name
from hpcrun.resources import parse_memory, parse_time
from hpcrun.schedulers.slurm_limits import QUERY_SECONDS, Obstacle
from hpcrun.schedulers.slurm_partitions import find_partition
from hpcrun.sites.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hpcrun.resources import Resources
    from hpcrun.schedulers.slurm_client import SlurmClient
    from hpcrun.schedulers.slurm_partitions import SlurmPartition

    Limit = tuple[str, str]  # the column of sacctmgr(1), and the resource (TRES); no resource for MaxWall

_TOTALS = {
    "MaxTRES": "",
    "MaxTRESPU": " for all jobs of a user",
    "MaxTRESPA": " for all jobs of an account",
    "GrpTRES": " for all its jobs",
}
"""Columns that limit what a job may have in all, and whose jobs share that."""

_OF_ACCOUNTS = ("MaxWall", "MaxTRES", "MaxTRESPerNode", "MaxTRESMins", "GrpTRES")
_OF_QOS = (*_OF_ACCOUNTS, "MaxTRESPU", "MaxTRESPA", "MinTRES")
_SHOW = ("sacctmgr", "--noheader", "--parsable2", "show")
_ENFORCED = re.compile(r"^AccountingStorageEnforce\s*=.*\b(?:limits|safe|all)\b", re.MULTILINE)
_VALUE = re.compile(r"\d+[KMGT]?")
_NOUNS = {"node": "node", "cpu": "core", "gres/gpu": "GPU"}


@dataclass(frozen=True)
class Policies:
    """Rows of sacctmgr(1): all QoS, and this user's accounts."""

    qos: list[list[str]]
    accounts: list[list[str]]


def query_policies(slurm: SlurmClient, *, timeout: float = QUERY_SECONDS) -> Policies:
    """Return the limits of QoS and accounts; none without accounting, or if Slurm does not answer.

    Args:
        slurm: The commands of its Slurm.
        timeout: In seconds, of both queries.
    """
    of_qos, of_accounts = ",".join(_OF_QOS), ",".join(_OF_ACCOUNTS)
    show_qos = (*_SHOW, "qos", f"format=Name,Flags,{of_qos}")
    show_accounts = (*_SHOW, "assoc", f"user={user_name()}", f"format=Account,Partition,DefaultQOS,QOS,{of_accounts}")
    with ThreadPoolExecutor(1) as pool:
        qos = pool.submit(slurm.query_table, show_qos, 2 + len(_OF_QOS), timeout=timeout)
        accounts = slurm.query_table(show_accounts, 4 + len(_OF_ACCOUNTS), timeout=timeout)
        return Policies(qos.result() or [], accounts or [])


def are_enforced(slurm: SlurmClient, *, timeout: float = QUERY_SECONDS) -> bool:
    """Return whether jobs beyond these limits stay pending; otherwise Slurm only records usage."""
    return bool(_ENFORCED.search(slurm.query(("scontrol", "show", "config"), timeout=timeout).text or ""))


def find_obstacles(resources: Resources, partitions: Sequence[SlurmPartition], policies: Policies) -> list[Obstacle]:
    """Return the limits of QoS and accounts that a job exceeds on its own.

    Args:
        resources: What it requests.
        partitions: All partitions.
        policies: All limits.
    """
    limits = _select_limits(resources, partitions, policies)
    found = (one for limit, (owner, value) in limits.items() for one in _compare(resources, limit, owner, value))
    return list(dict.fromkeys(found))


def _select_limits(
    resources: Resources, partitions: Sequence[SlurmPartition], policies: Policies
) -> dict[Limit, tuple[str, str]]:
    """Return the limits that apply, each with who sets it: the partition's QoS, else the job's, else its account."""
    if "," in (resources.partition or ""):  # each may have a QoS of its own
        return {}
    partition = find_partition(partitions, resources.partition)
    own = [row for row in policies.accounts if row[1] in ("", partition.name if partition else "")]
    if resources.account:
        own = [row for row in own if row[0] == resources.account.lower()]
    defaults = {default or ("" if "," in names else names) for _, _, default, names, *_ in own}
    name = resources.qos or (defaults.pop() if len(defaults) == 1 else "")
    rows = {row[0]: row for row in policies.qos}
    order = [partition.properties.get("QoS", "") if partition else "", name]
    if "OverPartQOS" in rows.get(name, ["", ""])[1]:
        order.reverse()
    found: dict[Limit, tuple[str, str]] = {}
    for owner in (one for one in order if one in rows):
        for limit, value in _parse(_OF_QOS, rows[owner][2:]):
            found.setdefault(limit, (f"QoS {owner}", value))
    if len(own) == 1:
        for limit, value in _parse(_OF_ACCOUNTS, own[0][4:]):
            found.setdefault(limit, (f"account {own[0][0]}", value))
    return found


def _parse(columns: Sequence[str], values: Sequence[str]) -> Iterator[tuple[Limit, str]]:
    """Yield the limits of a row: ``("MaxTRES", "node"), "2"`` of ``cpu=8,node=2``."""
    for column, text in zip(columns, values, strict=True):
        if column == "MaxWall" and text:
            yield (column, ""), text
        for name, equals, value in (pair.partition("=") for pair in text.split(",")):
            if equals and _VALUE.fullmatch(value):
                yield (column, name), value


def _compare(resources: Resources, limit: Limit, owner: str, value: str) -> Iterator[Obstacle]:
    """Yield how a job exceeds a limit."""
    column, name = limit
    name = "gres/gpu" if name == f"gres/gpu:{resources.gpu_type}" else name
    where = owner + _TOTALS.get(column, "")
    if column == "MaxTRESMins":
        yield from _compare_minutes(resources, name, where, value)
    elif column in _TOTALS and name == "mem":
        yield from _compare_memory(resources, where, value)
    elif fields := _fields(column, name, value, resources):
        limits = Limits(**fields)  # type: ignore[arg-type]
        for fault, hint in limits.find_violations(resources, where):
            yield Obstacle(fault.removesuffix(" a job"), hint, is_certain=False)


def _fields(column: str, name: str, value: str, resources: Resources) -> Mapping[str, str | int]:
    """Return a limit as a field of `Limits`; nothing for those that are not checked."""
    if column == "MaxWall":
        return {"max_time": value}
    if column == "MaxTRESPerNode" and name == "mem":
        return {"mem_per_node": value}
    if not value.isdecimal():
        return {}
    names = {column: {"node": "max_nodes", "cpu": "max_cpus", "gres/gpu": "max_gpus"} for column in _TOTALS}
    names["MaxTRESPerNode"] = {"cpu": "cpus_per_node", "gres/gpu": "gpus_per_node"}
    names["MinTRES"] = {"node": "min_nodes"} if resources.nodes else {}
    field = names[column].get(name)
    return {field: int(value)} if field and (int(value) or "gpus" in field) else {}


def _compare_minutes(resources: Resources, name: str, where: str, value: str) -> Iterator[Obstacle]:
    """Yield that a job is too long for what it requests: a limit of node-minutes, for example."""
    nodes = resources.nodes or 1
    counts = {
        "node": nodes,
        "cpu": resources.ranks * (resources.cpus_per_task or 1),
        "gres/gpu": nodes * resources.gpus,
    }
    count = counts.get(name, 0)
    if count and value.isdecimal() and resources.time and count * parse_time(resources.time) > int(value) * 60:
        fault = f"--time={resources.time} with {pluralize(count, _NOUNS[name])} is more than {where} allows: "
        hint = f"give --time={int(value) // count} or less, or request less" if int(value) >= count else "request less"
        yield Obstacle(f"{fault}{value} {_NOUNS[name]}-minutes", hint, is_certain=False)


def _compare_memory(resources: Resources, where: str, value: str) -> Iterator[Obstacle]:
    memory, option = resources.memory or (0, "")
    nodes = resources.nodes or 1
    if memory * nodes > parse_memory(value):
        fault = f"{option} on {pluralize(nodes, 'node')} is more than {where} allows: {value}"
        yield Obstacle(fault, "request less memory, or fewer nodes", is_certain=False)
