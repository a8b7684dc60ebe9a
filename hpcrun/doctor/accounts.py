"""Whether somebody pays for this user's jobs, as Slurm's accounting has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.doctor import discover_commands, discover_slurm
from hpcrun.doctor.slurm_checks import unknown
from hpcrun.errors import closest_match
from hpcrun.finding import error, ok, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.doctor.context import Case
    from hpcrun.finding import Finding


def account(case: Case) -> Iterator[Finding]:
    """Look who may pay for this user's jobs."""
    settings = case.cluster.settings
    if not case.cluster.accounted:
        yield ok("accounting", "none: of jobs that have left the queue, hpcrun knows what their scripts recorded")
        return
    enforced, asks = settings.get("AccountingStorageEnforce") or "none", discover_slurm.enforces_accounts(settings)
    told = discover_commands.answer(discover_commands.accounts()["accounts"], case.slurm_conf)
    if told.fault:
        yield warning("accounting", f"sacctmgr fails: {told.fault}", "ask the cluster's administrators")
        return
    accounts = discover_slurm.accounts(told.text, settings)
    chosen = case.account
    if chosen and accounts and chosen not in accounts:
        like = closest_match(chosen, accounts)
        meant = f"did you mean {like}? " if like else ""
        found = f"you have no account {chosen}"
        if not asks:
            found += f", and Slurm does not mind (AccountingStorageEnforce is {enforced})"
        yield (error if asks else warning)("account", found, f"{meant}You have {', '.join(accounts)}")
    elif asks and not accounts:
        name = settings.get("ClusterName", "")
        found = f"you have none on cluster {name}, and Slurm wants one (AccountingStorageEnforce is {enforced})"
        yield error("account", found, "ask the cluster's administrators for one")
    elif case.site.limits.account_required and not chosen:
        fix = f"give --account, one of {', '.join(accounts)}" if accounts else "ask the cluster's administrators"
        yield warning("account", "the site wants one, and defaults.account names none", fix)
    elif accounts:
        yield ok("account", f"{chosen} (of {', '.join(accounts)})" if chosen else ", ".join(accounts))
    else:
        yield ok("account", f"this cluster needs none (AccountingStorageEnforce is {enforced})")


def qos(case: Case) -> Iterator[Finding]:
    """Look whether Slurm has the QoS that the site file names."""
    chosen = case.asked.get("qos") or case.site.defaults.qos
    named = [*([chosen] if chosen else []), *case.site.qos]
    if not named or not case.cluster.accounted:
        return
    table = ("sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=Name")
    known = discover_commands.answer(table, case.slurm_conf).text.split()
    if missing := [name for name in dict.fromkeys(named) if known and name not in known]:
        yield unknown(case, "QoS", missing, known, ("qos", missing[0]) if missing[0] != chosen else ("defaults", "qos"))
    elif known:
        yield ok("QoS", ", ".join(dict.fromkeys(named)))
