"""Run the job of ``hpcrun site test``, and report its results."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hpcrun.cli import output, short_job
from hpcrun.doctor import benchmark_report, benchmark_results
from hpcrun.doctor.benchmark_regressions import LABELS
from hpcrun.errors import pluralize
from hpcrun.jobs.result_format import format_value

if TYPE_CHECKING:
    from hpcrun.doctor.benchmark_report import BenchmarkReport
    from hpcrun.jobs.runs import Run
    from hpcrun.submission import Plan


def run_benchmark(plan: Plan, timeout: float, *, keep_directory: bool, as_json: bool) -> int:
    """Submit a test job, follow it to its end, and print and record its results.

    Args:
        plan: The job to submit.
        timeout: Maximum time of the job in the queue, in s.
        keep_directory: Whether to keep the run directory of a successful test, too.
        as_json: Print one JSON value.

    Returns:
        The exit code: 0 if all steps of the test succeeded, 1 if a step failed.

    Raises:
        HpcrunError: The job could not be submitted or cancelled.
        Exit: A signal cancelled the job.
    """
    nodes, ranks = plan.spec.resources.nodes or 1, plan.spec.resources.ranks
    counts = f"{pluralize(nodes, 'node')}, {pluralize(ranks, 'rank')}"
    purpose = f"tests site {plan.spec.site.name}: {counts}, started by {plan.spec.launcher}"
    printed_steps: set[str] = set()

    def print_steps(run: Run) -> None:
        for step in benchmark_results.RESULT_STEPS:
            if step not in printed_steps and (text := benchmark_results.describe_step(run, step)):
                printed_steps.add(step)
                output.message(f"{step}: {text}")

    run, pending_reason = short_job.run(plan, timeout, purpose, print_steps)
    report = benchmark_report.create_report(run, plan, pending_reason, timeout)
    keep_directory = keep_directory or bool(report.record.failed)
    if as_json:
        output.value({**report.as_json(), "run_dir": str(run.directory) if keep_directory else None})
    else:
        _show(report)
    short_job.remove_run(run, keep_directory=keep_directory)
    if not pending_reason:
        unrecorded_message = "the results are not recorded: no folder for them is writable"
        output.message(f"recorded in {report.file}" if report.file else unrecorded_message)
    return 1 if report.record.failed else 0


def _show(report: BenchmarkReport) -> None:
    """Print tables of the test's steps and of the nodes, then the slow nodes or the cause of a failure."""
    output.table(("step", "", "found"), benchmark_results.step_table(report.steps))
    nodes = report.record.of_nodes
    keys = [key for key in LABELS if any(key in node for node in nodes.values())]
    if nodes:
        slow_nodes = {name for finding in report.slow for name in finding.nodes}
        rows = [
            (name, *(format_value(node[key]) if key in node else "" for key in keys), "slow" * (name in slow_nodes))
            for name, node in nodes.items()
        ]
        print()
        output.table(("node", *(" ".join(LABELS[key]) for key in keys), ""), rows)
    lines = [finding.sentence for finding in report.slow]
    if report.slow and len(nodes) > 1 and not any(len(finding.nodes) == 1 for finding in report.slow):
        advice = "A test of three nodes (-N 3) shows which of the two is slow, if only one is."
        lines.append(advice if len(nodes) == 2 else "No node is slower than the others.")
    if report.slow and report.changed:
        changes = [f"{name} was {was}, now {now}" for name, (was, now) in report.changed.items()]
        lines.append(f"Since the last such test: {'; '.join(changes)}.")
    if report.node_problems:
        problems = [
            f"  {finding.severity.upper()}: {finding.check}: {finding} ({finding.fix})"
            for finding in report.node_problems
        ]
        lines += [*([""] if lines else []), "Findings on the nodes:", *problems]
    if report.log:
        lines += ["the log ends:", *(f"  {line}" for line in report.log)]
    if report.steps[-1].fix:
        lines += [*([""] if lines else []), f"What to do: {report.steps[-1].fix}"]
    if report.record.failed and report.warnings:
        warnings = [
            f"  {finding.where or report.record.site}: {finding.what} ({finding.fix})" for finding in report.warnings
        ]
        lines += [*([""] if lines else []), "Findings on the site file, perhaps the cause:", *warnings]
    if lines:
        output.show("\n".join(("", *lines)))
    sys.stdout.flush()
