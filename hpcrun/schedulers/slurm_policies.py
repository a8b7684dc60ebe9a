"""Queries to Slurm's accounting (sacctmgr) for a user's accounts, and for the limits of accounts and QoS."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hpcrun.paths import user_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.schedulers.slurm_client import SlurmClient

TIMEOUT_SECONDS = 10.0
_SHOW_COMMAND = ("sacctmgr", "--noheader", "--parsable2", "show")

_REASON = re.compile(
    r"(?P<level>QOS|Assoc)(?P<kind>Max|Min|Grp)(?P<what>[A-Z][A-Za-z]*?)(?P<minutes>(?:Run)?Minutes)?"
    r"(?P<per>Per(?:Job|Node|User|Account))?(?:Limit|NotSatisfied)?"
)
"""Pattern of the reasons of pending jobs that name a limit, as in slurmctld's job_reason_string()."""

_JOB_COUNTS = {"Jobs": "Jobs", "Job": "Jobs", "SubmitJobs": "Submit", "SubmitJob": "Submit"}
_SCOPE_SUFFIXES = {"PerUser": "PU", "PerAccount": "PA", "PerNode": "PerNode"}
_RESOURCES = {
    "cpu": "cpu", "mem": "mem", "memory": "mem", "node": "node", "nodes": "node", "gres": "gres", "billing": "billing",
    "license": "license", "bb": "bb", "energy": "energy",
}  # fmt: skip
"""Names of resources in reasons, in lower case, and their names in sacctmgr(1) (TRES)."""


def names_policy_limit(reason: str) -> bool:
    """Return whether Slurm's reason for a pending job names a limit of an account or a QoS."""
    return bool(_REASON.fullmatch(reason))


def query_accounts(slurm: SlurmClient) -> dict[str, list[str]]:
    """Return the QoS of each account of this user, by account; empty without accounting."""
    command = (*_SHOW_COMMAND, "assoc", f"user={user_name()}", "format=Account,QOS")
    rows = slurm.query_table(command, 2, timeout=TIMEOUT_SECONDS) or []
    qos_by_account: dict[str, list[str]] = {}
    for account, qos in rows:
        qos_names = qos_by_account.setdefault(account, [])
        qos_names += [name for name in qos.split(",") if name and name not in qos_names]
    return qos_by_account


def query_limits(slurm: SlurmClient, reason: str, *, qos: Sequence[str], account: str) -> list[str]:
    """Return the limits that Slurm's reason for a pending job names, such as ``QoS short: MaxTRES node=1``.

    Args:
        slurm: The client of the job's Slurm cluster.
        reason: Slurm's reason why the job is pending or was refused, such as ``QOSMaxNodePerJobLimit``.
        qos: The QoS of the job and of its partition.
        account: The account of the job.
    """
    match = _REASON.fullmatch(reason)
    if not match:
        return []
    column, resource = _find_column(match)
    if match["level"] == "QOS":
        show_command: tuple[str, ...] = (
            *_SHOW_COMMAND,
            "qos",
            f"name={','.join(filter(None, qos))}",
            f"format=Name,{column}",
        )
        owner_format = "QoS {}"
    else:
        column = {"MaxJobsPU": "MaxJobs", "MaxSubmitPU": "MaxSubmit"}.get(column, column)
        show_command = (
            *_SHOW_COMMAND,
            "assoc",
            f"account={account}",
            f"user={user_name()},",
            f"format=Account,{column}",
        )
        owner_format = "account {}"
    rows = slurm.query_table(show_command, 2, timeout=TIMEOUT_SECONDS) or []
    limits = [(name, _select_resource(value, resource)) for name, value in rows]
    return list(dict.fromkeys(f"{owner_format.format(name)}: {column} {value}" for name, value in limits if value))


def _find_column(reason: re.Match[str]) -> tuple[str, str]:
    """Return the column of sacctmgr(1) that Slurm's reason names, and its resource; empty for all resources."""
    bound, resource, scope = reason["kind"], reason["what"], reason["per"] or ""
    if resource.startswith("Wall"):
        return f"{bound}Wall", ""
    if resource in _JOB_COUNTS:
        return f"{bound}{_JOB_COUNTS[resource]}" + (_SCOPE_SUFFIXES.get(scope, "PU") if bound == "Max" else ""), ""
    minutes = {"Minutes": "Mins", "RunMinutes": "RunMins"}.get(reason["minutes"] or "", "")
    return f"{bound}TRES{minutes}{_SCOPE_SUFFIXES.get(scope, '')}", _RESOURCES.get(resource.lower(), "")


def _select_resource(value: str, resource: str) -> str:
    """Return the part of a limit for one resource, such as ``cpu=2`` in ``cpu=2,gres/gpu=1``; else the whole limit."""
    pairs = value.split(",")
    return ",".join([pair for pair in pairs if pair.startswith(resource)] or pairs)
