"""Names of QoS and accounts that a job gives, but Slurm does not know: where it enforces none, it accepts any."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hpcrun.errors import closest_match
from hpcrun.schedulers.slurm_limits import QUERY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpcrun.resources import Resources
    from hpcrun.schedulers.slurm_client import SlurmClient
    from hpcrun.schedulers.slurm_qos import Policies

MAX_NAMES = 12
"""Maximum number of names in a list."""

_IMPLIED = {"qos": r"qos|all", "account": r"associations|limits|qos|safe|all"}
"""The values of AccountingStorageEnforce with which sbatch refuses jobs with an unknown name (slurm.conf(5))."""


def list_names(names: Iterable[str]) -> str:
    """Return names in a sentence, at most `MAX_NAMES` of them."""
    known = list(dict.fromkeys(names))
    return ", ".join(known[:MAX_NAMES]) + ", ..." * (len(known) > MAX_NAMES)


def find_unknown(resources: Resources, policies: Policies) -> dict[str, str]:
    """Return a warning for each option with a name that Slurm's accounting does not have.

    Args:
        resources: What the job requests.
        policies: All QoS, and this user's accounts; nothing is known without accounting.
    """
    known = {
        "qos": ([row[0] for row in policies.qos], "Slurm has no QoS {}; it has"),
        "account": ([row[0] for row in policies.accounts], "{} is no account of yours in Slurm; yours are"),
    }
    found = {}
    for option, (names, what) in known.items():
        given = getattr(resources, option) or ""
        if names and given and given.lower() not in map(str.lower, names):
            like = closest_match(given, names)
            meant = f"; did you mean --{option}={like}?" if like else ""
            found[option] = f"{what.format(given)} {list_names(names)}{meant}"
    return found


def warn_of_unknown(resources: Resources, policies: Policies, slurm: SlurmClient) -> list[str]:
    """Return warnings about names that Slurm does not know; none where sbatch refuses them, and says so.

    Args:
        resources: What the job requests.
        policies: All QoS, and this user's accounts.
        slurm: The commands of its Slurm.
    """
    found = find_unknown(resources, policies)
    if not found:
        return []
    config = slurm.query(("scontrol", "show", "config"), timeout=QUERY_SECONDS).text or ""
    enforced = re.search(r"^AccountingStorageEnforce\s*=\s*(.*)$", config, re.MULTILINE)
    words = enforced[1].lower() if enforced else "all"  # without an answer, sbatch has the last word
    return [text for option, text in found.items() if not re.search(rf"\b(?:{_IMPLIED[option]})\b", words)]
