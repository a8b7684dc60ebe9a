"""Run the job of ``hpcrun doctor --in-job``, and report on its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcrun.cli import output, short_job
from hpcrun.cli.doctor_table import COLOURS, show_findings
from hpcrun.doctor import checks, in_job, node_differences, site_job
from hpcrun.errors import HpcrunError, pluralize
from hpcrun.finding import failure
from hpcrun.nodelist import fold_hosts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.doctor.context import CheckContext
    from hpcrun.doctor.node_differences import HostFact
    from hpcrun.doctor.node_report import NodeReport
    from hpcrun.finding import Finding
    from hpcrun.jobs.runs import Run
    from hpcrun.submission import Plan
    from hpcrun.why.explanation import Explanation


def check_nodes(
    context: CheckContext, plan: Plan | HpcrunError, host_findings: Sequence[Finding], timeout: float, *, as_json: bool
) -> tuple[list[Finding], dict[str, Any]]:
    """Run the job, and print the results of the checks that ran on its nodes.

    Args:
        context: The site and the options of the job.
        plan: The job, or the error that prevents it.
        host_findings: The results of the checks on this host.
        timeout: Maximum time of the job in the queue, in s.
        as_json: Whether the caller prints JSON, so that this function prints nothing.

    Returns:
        The findings, and the values of the JSON output, by key.
    """
    try:
        run, pending_reason = _run_job(context, plan, host_findings, timeout)
    except HpcrunError as reason:
        return _report(context, [failure("job", reason)], as_json=as_json)
    if pending_reason:
        rows, nodes = [site_job.pending_finding(pending_reason, timeout)], []
    else:
        nodes = in_job.wait_for_node_reports(run)
        rows = checks.check_job(context, run, nodes)
    has_errors = any(row.severity == "error" for row in rows)
    # findings on the site file may explain the failure
    rows += [row for row in host_findings if has_errors and row.check == "site file" and row.severity != "ok"]
    title = f"In job {run.job_id}, on {fold_hosts(node.host for node in nodes) or 'no node'}:"
    facts = {**run.summary(), "run_dir": str(run.directory) if has_errors else None}
    report = _report(context, rows, nodes, title=title, job_facts=facts, as_json=as_json)
    short_job.remove_run(run, keep_directory=has_errors)
    return report


def _run_job(
    context: CheckContext, plan: Plan | HpcrunError, host_findings: Sequence[Finding], timeout: float
) -> tuple[Run, Explanation | None]:
    """Run the job, unless the findings on this host prevent it.

    Raises:
        HpcrunError: The job could not be submitted or cancelled.
    """
    if isinstance(plan, HpcrunError):
        raise HpcrunError(f"not submitted: {plan.message}", hint=plan.hint)
    if any((row.check, row.severity) == ("Slurm", "error") for row in host_findings):
        raise HpcrunError("not submitted: Slurm does not answer", hint="try again when it does")
    nodes = pluralize(plan.spec.resources.nodes or 1, "node")
    return short_job.run(plan, timeout, f"checks {nodes} of site {context.site.name} (Ctrl+C cancels it)")


def _report(
    context: CheckContext,
    rows: Sequence[Finding],
    nodes: Sequence[NodeReport] = (),
    *,
    title: str = "In a job:",
    job_facts: dict[str, Any] | None = None,
    as_json: bool,
) -> tuple[list[Finding], dict[str, Any]]:
    """Print the findings and facts of a job's nodes; return the findings, and the values of the JSON output, by key."""
    facts = node_differences.compare_hosts(nodes, context.host_report)
    rows = [*rows, *node_differences.warn_of_differences(facts)]
    if not as_json:
        show_findings(title, rows)
        if nodes:
            print("Facts of the nodes:\n")
            _show_facts(facts, node_differences.summarize_measurements(nodes, context.host_report))
    differences = [
        {"fact": fact.name, "differs": fact.differs, "here": fact.this_host, "nodes": [
            {"value": value, "hosts": hosts} for value, hosts in fact.values
        ]}
        for fact in facts if fact.differs
    ]  # fmt: skip
    report = {"job": job_facts, "job_rows": [row.as_json() for row in rows], "differences": differences}
    host_facts = context.host_report.all_values if context.host_report else {}
    return rows, {**report, "here": host_facts, "nodes": [node.all_values for node in nodes]}


def _show_facts(facts: Sequence[HostFact], measurements: Sequence[tuple[str, str, str]]) -> None:
    """Print the facts in which hosts differ, then those that are equal on all hosts."""
    marks = {"nodes": "nodes differ", "here": "differs here", "": ""}
    cells = []
    for fact in sorted(facts, key=lambda fact: ["nodes", "here", ""].index(fact.differs)):
        for number, (value, hosts) in enumerate(fact.hosts_by_value()):
            cells.append((marks[fact.differs], fact.name, value, hosts) if number == 0 else ("", "", value, hosts))
    for name, nodes, host_value in measurements:
        cells.append(("", name, nodes, "nodes"))
        cells += [("", "", host_value, "here")] if host_value and host_value != nodes else []
    output.table(("", "fact", "value", "where"), cells, colours=COLOURS, max_lines=None)
