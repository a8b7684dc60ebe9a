"""A user's accounts, and the limits of accounts and QoS, from Slurm's accounting (sacctmgr)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hpcrun.paths import user_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.schedulers.slurm_client import SlurmClient

TIMEOUT_SECONDS = 10.0
_SHOW = ("sacctmgr", "--noheader", "--parsable2", "show")

_REASON = re.compile(
    r"(?P<level>QOS|Assoc)(?P<kind>Max|Min|Grp)(?P<what>[A-Z][A-Za-z]*?)(?P<minutes>(?:Run)?Minutes)?"
    r"(?P<per>Per(?:Job|Node|User|Account))?(?:Limit|NotSatisfied)?"
)
"""Reasons of pending jobs in slurmctld's job_reason_string()."""

_COUNTED = {"Jobs": "Jobs", "Job": "Jobs", "SubmitJobs": "Submit", "SubmitJob": "Submit"}
_PER = {"PerUser": "PU", "PerAccount": "PA", "PerNode": "PerNode"}
_RESOURCES = {
    "cpu": "cpu", "mem": "mem", "memory": "mem", "node": "node", "nodes": "node", "gres": "gres", "billing": "billing",
    "license": "license", "bb": "bb", "energy": "energy",
}  # fmt: skip
"""Names of resources in reasons, in lower case, and in sacctmgr(1)'s TRES."""


def is_policy(reason: str) -> bool:
    """Return whether a reason of Slurm stands for a limit of an account or a QoS."""
    return bool(_REASON.fullmatch(reason))


def query_accounts(slurm: SlurmClient) -> dict[str, list[str]]:
    """Return this user's accounts, each with its QoS; none without accounting."""
    command = (*_SHOW, "assoc", f"user={user_name()}", "format=Account,QOS")
    rows = slurm.query_table(command, 2, timeout=TIMEOUT_SECONDS) or []
    found: dict[str, list[str]] = {}
    for account, qos in rows:
        names = found.setdefault(account, [])
        names += [name for name in qos.split(",") if name and name not in names]
    return found


def query_limits(slurm: SlurmClient, reason: str, *, qos: Sequence[str], account: str) -> list[str]:
    """Return the limits that a reason of Slurm stands for, such as ``QoS short: MaxTRES node=1``.

    Args:
        slurm: The commands of the job's Slurm.
        reason: Why a job is pending, or was refused, in Slurm's words: ``QOSMaxNodePerJobLimit``.
        qos: The QoS of the job and of its partition.
        account: The account of the job.
    """
    match = _REASON.fullmatch(reason)
    if not match:
        return []
    column, resource = _find_column(match)
    if match["level"] == "QOS":
        shown: tuple[str, ...] = (*_SHOW, "qos", f"name={','.join(filter(None, qos))}", f"format=Name,{column}")
        owner = "QoS {}"
    else:
        column = {"MaxJobsPU": "MaxJobs", "MaxSubmitPU": "MaxSubmit"}.get(column, column)
        shown = (*_SHOW, "assoc", f"account={account}", f"user={user_name()},", f"format=Account,{column}")
        owner = "account {}"
    rows = slurm.query_table(shown, 2, timeout=TIMEOUT_SECONDS) or []
    found = [(name, _select_resource(value, resource)) for name, value in rows]
    return list(dict.fromkeys(f"{owner.format(name)}: {column} {value}" for name, value in found if value))


def _find_column(reason: re.Match[str]) -> tuple[str, str]:
    """Return the column of sacctmgr(1) that a reason stands for, and the resource in it; empty for all."""
    kind, what, per = reason["kind"], reason["what"], reason["per"] or ""
    if what.startswith("Wall"):
        return f"{kind}Wall", ""
    if what in _COUNTED:
        return f"{kind}{_COUNTED[what]}" + (_PER.get(per, "PU") if kind == "Max" else ""), ""
    minutes = {"Minutes": "Mins", "RunMinutes": "RunMins"}.get(reason["minutes"] or "", "")
    return f"{kind}TRES{minutes}{_PER.get(per, '')}", _RESOURCES.get(what.lower(), "")


def _select_resource(value: str, resource: str) -> str:
    """Return the limits of one resource: ``cpu=2`` of ``cpu=2,gres/gpu=1``; all of them if it is not among them."""
    pairs = value.split(",")
    return ",".join([pair for pair in pairs if pair.startswith(resource)] or pairs)
