"""``hpcrun why``: explain why a job is pending or failed, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from hpcrun.cli import output
from hpcrun.cli.parameters import JobOrSweep, Json  # noqa: TC001 - Typer reads the annotations
from hpcrun.sweep import format_values

if TYPE_CHECKING:
    from hpcrun.why.evidence import Evidence
    from hpcrun.why.explanation import Explanation
    from hpcrun.why.task_groups import TaskGroup

PROGRESS_BAR_TASKS = 50
"""Minimum number of tasks for which a progress bar is shown, because reading their logs takes seconds."""


def why(job: JobOrSweep = "last", as_json: Json = False) -> None:
    """Explain why a job is pending or failed, and what to do.

    For a sweep, each cause is explained once, with its tasks. The exit code
    is 1 if the cause is unknown.

    \b
    Examples:
      hpcrun why
      hpcrun why 1234
      hpcrun why 1234_3-7
      hpcrun why last --json
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.jobs import sweep_tasks
    from hpcrun.why.explanation import explain, explain_all
    from hpcrun.why.task_groups import group_tasks

    runs = sweep_tasks.select_tasks(job)
    if len(runs) == 1:
        explanations = [explain(runs[0])]
        if as_json:
            output.value(explanations[0].as_json())
        else:
            _show_headline(explanations[0].headline)
            _show_explanation(explanations[0])
    else:
        runs_with_progress = output.progress(runs, "reading logs") if len(runs) >= PROGRESS_BAR_TASKS else runs
        groups = group_tasks(explanation for _, explanation in zip(runs_with_progress, explain_all(runs), strict=True))
        explanations = [group.example for group in groups]
        if as_json:
            output.value([group.as_json() for group in groups])
        else:
            for index, group in enumerate(groups):
                print("\n" * bool(index), end="")
                _show_group(group)
    if not all(explanation.is_known for explanation in explanations):
        raise typer.Exit(1)


def _show_group(group: TaskGroup) -> None:
    from hpcrun.jobs.sweep_tasks import format_task_ids

    explanation, is_group = group.example, len(group.tasks) > 1
    _show_headline(group.headline)
    if is_group and explanation.diagnosis.evidence:
        output.show(
            f"Job {explanation.run.job_id or '-'} ({format_values(explanation.run.values.items())}), for example:"
        )
    _show_explanation(explanation)
    if is_group and explanation.state.finished and not explanation.is_healthy:
        output.show(f"To submit them again: hpcrun resubmit {format_task_ids(group.tasks)}")


def _show_headline(headline: str) -> None:
    from hpcrun.why.sentences import shorten

    output.show(shorten(headline))


def _show_explanation(explanation: Explanation) -> None:
    _show_evidence(explanation.diagnosis.evidence)
    if explanation.diagnosis.fix:
        _show_fix(explanation.diagnosis.fix)
    for other_diagnosis in explanation.others:
        output.show(f"\nAlso: {other_diagnosis.summary}")
        _show_evidence(other_diagnosis.evidence)
        _show_fix(other_diagnosis.fix)


def _show_fix(fix: str) -> None:
    from hpcrun.why.sentences import split_steps

    first, *others = split_steps(fix)
    output.show("\n".join([f"What to do: {first}", *(f"  - {step}" for step in others)]))


def _show_evidence(evidence: tuple[Evidence, ...]) -> None:
    for item in evidence:
        output.show(f"  {item.source}: {item.line}")
