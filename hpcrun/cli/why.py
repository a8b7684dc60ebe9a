"""``hpcrun why``: why a job waits or failed, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from hpcrun.cli import output
from hpcrun.cli.arguments import Job, Json  # noqa: TC001 - Typer reads the annotations

if TYPE_CHECKING:
    from hpcrun.why.evidence import Evidence


def why(job: Job = "last", as_json: Json = False) -> None:
    """Say why a job waits or failed, and what to do.

    The exit code is 1 where hpcrun does not know why.

    \b
    Examples:
      hpcrun why
      hpcrun why 1234
      hpcrun why last --json
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.jobs import select
    from hpcrun.why.answer import explain

    answer = explain(select.one(job))
    if as_json:
        output.value(answer.as_json())
    else:
        print(answer.headline)
        _show(answer.finding.evidence)
        if answer.finding.fix:
            print(f"What to do: {answer.finding.fix}")
        for other in answer.others:
            print(f"\nAlso: {other.says}")
            _show(other.evidence)
            print(f"What to do: {other.fix}")
    if not answer.known:
        raise typer.Exit(1)


def _show(evidence: tuple[Evidence, ...]) -> None:
    for seen in evidence:
        print(f"  {seen.source}: {seen.line}")
