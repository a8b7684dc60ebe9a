"""The job of ``hpcrun doctor --in-job``, and telling what its nodes said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcrun.cli import output, short_job
from hpcrun.cli.doctor_rows import STYLES, show, values
from hpcrun.doctor import checks, in_job, node_differences
from hpcrun.doctor.benchmark_results import pluralize
from hpcrun.errors import HpcrunError
from hpcrun.finding import error, failure
from hpcrun.nodelist import fold
from hpcrun.watch.words import span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.doctor.context import CheckContext
    from hpcrun.doctor.node_differences import HostFact
    from hpcrun.finding import Finding
    from hpcrun.jobs.runs import Run
    from hpcrun.pipeline import Plan
    from hpcrun.why.answer import Answer


def inside(
    case: CheckContext, plan: Plan | HpcrunError, here: Sequence[Finding], patience: float, *, as_json: bool
) -> tuple[list[Finding], dict[str, Any]]:
    """Run the job, and show what came of it.

    Args:
        case: What is looked at.
        plan: The job, or why it is refused.
        here: What was found on this host.
        patience: Seconds that the job may wait in the queue.
        as_json: Show nothing.

    Returns:
        Its rows, and the same as JSON has it.
    """
    try:
        run, waited = _run(case, plan, here, patience)
    except HpcrunError as reason:
        return _told(case, [failure("job", reason)], as_json=as_json)
    if waited:
        found = f"not started after {span(patience)} in the queue, and cancelled: {waited.finding.says}"
        rows, nodes_told = [error("job", found, waited.finding.fix)], []
    else:
        nodes_told = in_job.read_node_reports(run)
        rows = checks.check_job(case, run, nodes_told)
    failed = any(row.severity == "error" for row in rows)
    # what made it fail may be what reading the site file has shown
    rows += [row for row in here if failed and row.check == "site file" and row.severity != "ok"]
    title = f"In job {run.job_id}, on {fold(node['host'] for node in nodes_told) or 'no node'}:"
    facts = {**run.facts(), "run_dir": str(run.directory) if failed else None}
    told = _told(case, rows, nodes_told, title=title, job_facts=facts, as_json=as_json)
    short_job.leave(run, kept=failed)
    return told


def _run(
    case: CheckContext, plan: Plan | HpcrunError, here: Sequence[Finding], patience: float
) -> tuple[Run, Answer | None]:
    """Run the job, unless it is in vain.

    Raises:
        HpcrunError: There is no job, or it could not be cancelled.
    """
    if isinstance(plan, HpcrunError):
        raise HpcrunError(f"not submitted: {plan.message}", hint=plan.hint)
    if any((row.check, row.severity) == ("Slurm", "error") for row in here):
        raise HpcrunError("not submitted: Slurm does not answer", hint="ask again when it does")
    nodes = pluralize(plan.spec.resources.nodes or 1, "node")
    return short_job.run(plan, patience, f"looks at {nodes} of site {case.site.name} (Ctrl+C cancels it)")


def _told(
    case: CheckContext,
    rows: Sequence[Finding],
    nodes: Sequence[dict[str, Any]] = (),
    *,
    title: str = "In a job:",
    job_facts: dict[str, Any] | None = None,
    as_json: bool,
) -> tuple[list[Finding], dict[str, Any]]:
    """Show what a job's nodes told, and return it as rows and as JSON has it."""
    facts = node_differences.compare_hosts(nodes, case.host_report)
    rows = [*rows, *node_differences.warn_of_differences(facts)]
    if not as_json:
        show(title, rows)
        if nodes:
            print("What the nodes are:\n")
            _show_facts(facts, node_differences.summarize_measurements(nodes, case.host_report))
    differences = [
        {"fact": fact.name, "differs": fact.differs, "here": fact.this_host, "nodes": [
            {"value": value, "hosts": hosts} for value, hosts in fact.values
        ]}
        for fact in facts if fact.differs
    ]  # fmt: skip
    told = {"job": job_facts, "job_rows": values(rows), "differences": differences}
    return rows, {**told, "here": case.host_report, "nodes": [*nodes]}


def _show_facts(facts: Sequence[HostFact], measured: Sequence[tuple[str, str, str]]) -> None:
    """Show how hosts differ, then what is the same on all."""
    marks = {"nodes": "nodes differ", "here": "not as here", "": ""}
    cells = []
    for fact in sorted(facts, key=lambda fact: ["nodes", "here", ""].index(fact.differs)):
        for number, (value, where) in enumerate(fact.hosts_by_value()):
            cells.append((marks[fact.differs], fact.name, value, where) if number == 0 else ("", "", value, where))
    for name, nodes, here in measured:
        cells.append(("", name, nodes, "nodes"))
        cells += [("", "", here, "here")] if here and here != nodes else []
    output.table(("", "fact", "value", "where"), cells, styles=STYLES)
