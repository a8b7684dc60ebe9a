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
    """Check the accounts of this user."""
    settings = context.cluster.settings
    if not context.cluster.has_accounting:
        yield ok("accounting", "none: for jobs that have left the queue, hpcrun uses the records of their scripts")
        return
    enforced, required = settings.get("AccountingStorageEnforce") or "none", discover_slurm.enforces_accounts(settings)
    output = context.slurm.query(discover_commands.account_commands()["accounts"])
    if output.failure:
        yield warning("accounting", f"sacctmgr fails: {output.failure}", "ask the cluster's administrators")
        return
    accounts = discover_slurm.parse_accounts(output.text, settings)
    chosen = context.account
    if chosen and accounts and chosen not in accounts:
        like = closest_match(chosen, accounts)
        meant = f"did you mean {like}? " if like else ""
        found = f"you have no account {chosen}"
        if not required:
            found += f", and Slurm does not require one (AccountingStorageEnforce is {enforced})"
        yield (error if required else warning)("account", found, f"{meant}You have {', '.join(accounts)}")
    elif required and not accounts:
        name = settings.get("ClusterName", "")
        found = f"you have none on cluster {name}, but Slurm requires one (AccountingStorageEnforce is {enforced})"
        yield error("account", found, "ask the cluster's administrators for one")
    elif context.site.limits.account_required and not chosen:
        fix = f"give --account, one of {', '.join(accounts)}" if accounts else "ask the cluster's administrators"
        yield warning("account", "the site requires one, but defaults.account is not set", fix)
    elif accounts:
        yield ok("account", f"{chosen} (of {', '.join(accounts)})" if chosen else ", ".join(accounts))
    else:
        yield ok("account", f"not required on this cluster (AccountingStorageEnforce is {enforced})")


def check_qos(context: CheckContext) -> Iterator[Finding]:
    """Check that Slurm has the QoS of the site file."""
    chosen = context.requested.get("qos") or context.site.defaults.qos
    named = [*([chosen] if chosen else []), *context.site.qos]
    if not named or not context.cluster.has_accounting:
        return
    table = ("sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=Name,Priority")
    known = [name for name, _ in context.slurm.query_table(table, 2) or ()]
    if missing := [name for name in dict.fromkeys(named) if known and name not in known]:
        yield unknown_name_finding(
            context, "QoS", missing, known, ("qos", missing[0]) if missing[0] != chosen else ("defaults", "qos")
        )
    elif known:
        yield ok("QoS", ", ".join(dict.fromkeys(named)))
