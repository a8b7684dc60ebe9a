"""Checks of this user's accounts and QoS in Slurm's accounting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.doctor import discover_commands, discover_slurm
from hpcrun.doctor.slurm_checks import unknown_name_finding
from hpcrun.errors import closest_match
from hpcrun.finding import error, ok, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.doctor.context import CheckContext
    from hpcrun.finding import Finding


def check_account(context: CheckContext) -> Iterator[Finding]:
    """Check that this user has the requested account, or at least one account if Slurm requires an account."""
    settings = context.cluster.settings
    if not context.cluster.has_accounting:
        yield ok("accounting", "none: for jobs that have left the queue, hpcrun uses the records of their scripts")
        return
    enforced_limits, is_required = (
        settings.get("AccountingStorageEnforce") or "none",
        discover_slurm.enforces_accounts(settings),
    )
    output = context.slurm.query(discover_commands.account_commands()["accounts"])
    if output.failure:
        yield warning("accounting", f"sacctmgr fails: {output.failure}", "ask the cluster's administrators")
        return
    accounts = discover_slurm.parse_accounts(output.text, settings)
    requested_account = context.account
    if requested_account and accounts and requested_account not in accounts:
        closest_name = closest_match(requested_account, accounts)
        suggestion = f"did you mean {closest_name}? " if closest_name else ""
        problem = f"you have no account {requested_account}"
        if not is_required:
            problem += f", and Slurm does not require one (AccountingStorageEnforce is {enforced_limits})"
        yield (error if is_required else warning)("account", problem, f"{suggestion}You have {', '.join(accounts)}")
    elif is_required and not accounts:
        name = settings.get("ClusterName", "")
        problem = (
            f"you have none on cluster {name}, but Slurm requires one (AccountingStorageEnforce is {enforced_limits})"
        )
        yield error("account", problem, "ask the cluster's administrators for one")
    elif context.site.limits.account_required and not requested_account:
        fix = f"give --account, one of {', '.join(accounts)}" if accounts else "ask the cluster's administrators"
        yield warning("account", "the site requires one, but defaults.account is not set", fix)
    elif accounts:
        yield ok(
            "account", f"{requested_account} (of {', '.join(accounts)})" if requested_account else ", ".join(accounts)
        )
    else:
        yield ok("account", f"not required on this cluster (AccountingStorageEnforce is {enforced_limits})")


def check_qos(context: CheckContext) -> Iterator[Finding]:
    """Check that Slurm has the requested QoS and the QoS of the site file."""
    requested_qos = context.requested.get("qos") or context.site.defaults.qos
    site_qos = [*([requested_qos] if requested_qos else []), *context.site.qos]
    if not site_qos or not context.cluster.has_accounting:
        return
    command = ("sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=Name,Priority")
    known_qos = [name for name, _ in context.slurm.query_table(command, 2) or ()]
    if missing := [name for name in dict.fromkeys(site_qos) if known_qos and name not in known_qos]:
        yield unknown_name_finding(
            context,
            "QoS",
            missing,
            known_qos,
            ("qos", missing[0]) if missing[0] != requested_qos else ("defaults", "qos"),
        )
    elif known_qos:
        yield ok("QoS", ", ".join(dict.fromkeys(site_qos)))
