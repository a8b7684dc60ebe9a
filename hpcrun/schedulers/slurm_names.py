"""Warnings about QoS and accounts that do not exist: Slurm may accept them if it does not enforce valid names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hpcrun.errors import closest_match
from hpcrun.schedulers.slurm_limits import QUERY_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpcrun.resources import Resources
    from hpcrun.schedulers.slurm_client import SlurmClient
    from hpcrun.schedulers.slurm_qos import Policies

MAX_NAMES = 12
"""Maximum number of names that a message lists."""

_ACCOUNTING_ENFORCE_PATTERNS = {"qos": r"qos|all", "account": r"associations|limits|qos|safe|all"}
"""Patterns of AccountingStorageEnforce values with which sbatch refuses an unknown name (slurm.conf(5))."""


def list_names(names: Iterable[str]) -> str:
    """Join names with commas, at most `MAX_NAMES` of them."""
    unique_names = list(dict.fromkeys(names))
    return ", ".join(unique_names[:MAX_NAMES]) + ", ..." * (len(unique_names) > MAX_NAMES)


def find_unknown_names(resources: Resources, policies: Policies) -> dict[str, str]:
    """Return a warning for each option (qos, account) whose value is not in Slurm's accounting.

    Args:
        resources: The resources that the job requests.
        policies: All QoS, and this user's accounts; empty without accounting.
    """
    names_by_option = {
        "qos": ([row[0] for row in policies.qos], "Slurm has no QoS {}; it has"),
        "account": ([row[0] for row in policies.accounts], "{} is not one of your accounts in Slurm, which are"),
    }
    warnings = {}
    for option, (names, message) in names_by_option.items():
        requested_name = getattr(resources, option) or ""
        if names and requested_name and requested_name.lower() not in map(str.lower, names):
            closest_name = closest_match(requested_name, names)
            suggestion = f"; did you mean --{option}={closest_name}?" if closest_name else ""
            warnings[option] = f"{message.format(requested_name)} {list_names(names)}{suggestion}"
    return warnings


def warn_of_unknown_names(resources: Resources, policies: Policies, slurm: SlurmClient) -> list[str]:
    """Return warnings about QoS and accounts that Slurm does not know, unless sbatch refuses them with an error.

    Args:
        resources: The resources that the job requests.
        policies: All QoS, and this user's accounts.
        slurm: The client of the job's Slurm cluster.
    """
    warnings = find_unknown_names(resources, policies)
    if not warnings:
        return []
    config = slurm.query(("scontrol", "show", "config"), timeout=QUERY_TIMEOUT_SECONDS).text or ""
    enforced_match = re.search(r"^AccountingStorageEnforce\s*=\s*(.*)$", config, re.MULTILINE)
    enforced_types = (
        enforced_match[1].lower() if enforced_match else "all"
    )  # if Slurm does not answer, sbatch reports unknown names
    return [
        text
        for option, text in warnings.items()
        if not re.search(rf"\b(?:{_ACCOUNTING_ENFORCE_PATTERNS[option]})\b", enforced_types)
    ]
