"""Following the job of ``hpcrun site test``, and telling how it went."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hpcrun.cli import output, short_job
from hpcrun.doctor import benchmark_report, benchmark_results
from hpcrun.doctor.benchmark_regressions import LABELS
from hpcrun.jobs.figures import shown
from hpcrun.watch.words import span

if TYPE_CHECKING:
    from hpcrun.doctor.benchmark_report import BenchmarkReport
    from hpcrun.jobs.runs import Run
    from hpcrun.pipeline import Plan


def test(plan: Plan, patience: float, *, keep: bool, as_json: bool) -> int:
    """Submit a test, follow it to its end, and tell what it found.

    Args:
        plan: What is submitted.
        patience: Seconds that the job may wait in the queue.
        keep: Keep the run directory in any case.
        as_json: Print one JSON value.

    Returns:
        0 where all steps went well, 1 where one failed.

    Raises:
        HpcrunError: The job could not be submitted, or not be cancelled.
        Exit: A signal ended it.
    """
    nodes, ranks = plan.spec.resources.nodes or 1, plan.spec.resources.ranks
    counts = f"{benchmark_results.pluralize(nodes, 'node')}, {benchmark_results.pluralize(ranks, 'rank')}"
    told: set[str] = set()

    def tell_steps(run: Run) -> None:
        for step in benchmark_results.FILES:
            if step not in told and (content := benchmark_results.read_step(run, step)):
                told.add(step)
                output.message(f"{step}: {benchmark_results.describe_step(step, content)}")

    title = f"tests site {plan.spec.site.name}: {counts}, started by {plan.spec.launcher}"
    run, waited = short_job.run(plan, patience, title, tell_steps)
    found = benchmark_report.create_report(run, plan.found, waited, span(patience))
    kept = keep or bool(found.record.failed)
    if as_json:
        output.value({**found.as_json(), "run_dir": str(run.directory) if kept else None})
    else:
        _show(found)
    short_job.leave(run, kept=kept)
    if not waited:
        nowhere = "nothing is recorded: there is no folder for it that can be written to"
        output.message(f"recorded in {found.file}" if found.file else nowhere)
    return 1 if found.record.failed else 0


def _show(found: BenchmarkReport) -> None:
    """Print the steps and the nodes as tables, and below them what is slow, or why it failed."""
    output.table(("step", "", "found"), benchmark_results.step_table(found.steps))
    nodes = found.record.of_nodes
    keys = [key for key in LABELS if any(key in node for node in nodes.values())]
    if nodes:
        slow = {name for one in found.slow for name in one.nodes}
        rows = [
            (name, *(shown(node[key]) if key in node else "" for key in keys), "slow" * (name in slow))
            for name, node in nodes.items()
        ]
        print()
        output.table(("node", *(" ".join(LABELS[key]) for key in keys), ""), rows)
    lines = [one.says for one in found.slow]
    if found.slow and len(nodes) > 1 and not any(len(one.nodes) == 1 for one in found.slow):
        which = "Which of the two nodes it is, if it is one, a test of three tells: -N 3"
        lines.append(which if len(nodes) == 2 else "No node is slower than the others.")
    if found.slow and found.changed:
        news = [f"{name} was {was}, now {now}" for name, (was, now) in found.changed.items()]
        lines.append(f"Since the last such test: {'; '.join(news)}.")
    if found.log:
        lines += ["the log ends:", *(f"  {line}" for line in found.log)]
    if found.steps[-1].fix:
        lines += [*([""] if lines else []), f"What to do: {found.steps[-1].fix}"]
    if found.record.failed and found.warnings:
        shows = [f"  {one.where or found.record.site}: {one.what} ({one.fix})" for one in found.warnings]
        lines += [*([""] if lines else []), "What reading the site file shows, perhaps the cause:", *shows]
    if lines:
        print("", *lines, sep="\n")
    sys.stdout.flush()
