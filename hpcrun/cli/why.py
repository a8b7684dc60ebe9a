"""``hpcrun why``: explain why a job is pending or failed, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from hpcrun.cli import output
from hpcrun.cli.parameters import JobOrSweep, Json  # noqa: TC001 - Typer reads the annotations
from hpcrun.sweep import words

if TYPE_CHECKING:
    from hpcrun.why.answer import Answer
    from hpcrun.why.causes import Cause
    from hpcrun.why.evidence import Evidence

PROGRESS_BAR_TASKS = 50
"""From this number of tasks on, reading their logs takes seconds and shows a progress bar."""


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
    from hpcrun.jobs import sweeps
    from hpcrun.why.answer import explain, explained
    from hpcrun.why.causes import causes

    runs = sweeps.together(job)
    if len(runs) == 1:
        answers = [explain(runs[0])]
        if as_json:
            output.value(answers[0].as_json())
        else:
            output.show(answers[0].headline)
            _show(answers[0])
    else:
        with_progress = output.progress(runs, "reading logs") if len(runs) >= PROGRESS_BAR_TASKS else runs
        found = causes(answer for _, answer in zip(with_progress, explained(runs), strict=True))
        answers = [cause.first for cause in found]
        if as_json:
            output.value([cause.as_json() for cause in found])
        else:
            for number, cause in enumerate(found):
                print("\n" * bool(number), end="")
                _show_cause(cause)
    if not all(answer.known for answer in answers):
        raise typer.Exit(1)


def _show_cause(cause: Cause) -> None:
    from hpcrun.jobs.sweeps import named

    first, several = cause.first, len(cause.tasks) > 1
    output.show(cause.headline)
    if several and first.finding.evidence:
        output.show(f"Job {first.run.job_id or '-'} ({words(first.run.values.items())}), for example:")
    _show(first)
    if several and first.state.finished and not first.well:
        output.show(f"To submit them again: hpcrun resubmit {named(cause.tasks)}")


def _show(answer: Answer) -> None:
    _show_evidence(answer.finding.evidence)
    if answer.finding.fix:
        output.show(f"What to do: {answer.finding.fix}")
    for other in answer.others:
        output.show(f"\nAlso: {other.says}")
        _show_evidence(other.evidence)
        output.show(f"What to do: {other.fix}")


def _show_evidence(evidence: tuple[Evidence, ...]) -> None:
    for item in evidence:
        output.show(f"  {item.source}: {item.line}")
