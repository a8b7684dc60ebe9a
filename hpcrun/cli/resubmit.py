"""``hpcrun resubmit``: an old run once more."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

import signal
from typing import Annotated

import typer

from hpcrun.cli import completion, output
from hpcrun.cli.arguments import ONE_JOB, recovered
from hpcrun.cli.options import JobOptions, SplitCommand, with_job_options
from hpcrun.cli.submit import MaxRequeue, Wait, requested, send, show

COMMAND_CLASS = SplitCommand
Old = Annotated[
    str,
    typer.Argument(metavar="JOB", help=ONE_JOB, show_default=False, autocompletion=completion.jobs, callback=recovered),
]


@with_job_options
def resubmit(
    ctx: typer.Context, options: JobOptions, job: Old, wait: Wait = False, max_requeue: MaxRequeue = None
) -> None:
    """Submit an old run once more, from its record.

    Program, arguments, resources, variables and site are as they were, also
    where the site's file has changed since; --site NAME takes today's. What
    you set goes over it; ARGS replace the old arguments. It is a new run:
    it starts from the beginning.

    \b
    Examples:
      hpcrun resubmit last
      hpcrun resubmit 1234 -N 4 -t 2:00:00
      hpcrun resubmit lenet5 --dry-run -- --epochs 40
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun import repeat
    from hpcrun.jobs import select

    old = select.one(job)
    plan = repeat.again(old, requested(ctx, options, target=None, max_requeue=max_requeue), ctx.meta.get("hpcrun.args"))
    show(plan, options)
    changed = repeat.changes(old, plan.spec)
    output.message(f"again      job {old.job_id or '-'} ({old.name}), {old.directory}")
    for line in changed or ["nothing"]:
        output.message(f"changed    {line}")
    if not options.dry_run:
        send(plan, ends_with=(signal.SIGINT,) if wait else None, as_json=options.as_json)
