"""``hpcrun resubmit``: an old run, a sweep or some of its tasks once more."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

import signal
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli import completion, output
from hpcrun.cli.arguments import ONE_JOB_OR_SWEEP, States, recovered
from hpcrun.cli.options import JobOptions, SplitCommand, with_job_options
from hpcrun.cli.submit import MaxParallel, MaxRequeue, Wait, requested, send, show
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run

COMMAND_CLASS = SplitCommand
Old = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help=ONE_JOB_OR_SWEEP,
        show_default=False,
        autocompletion=completion.jobs,
        callback=recovered,
    ),
]


@with_job_options
def resubmit(
    ctx: typer.Context,
    options: JobOptions,
    job: Old,
    state: States = None,
    wait: Wait = False,
    max_parallel: MaxParallel = None,
    max_requeue: MaxRequeue = None,
) -> None:
    """Submit an old run once more, from its record.

    Program, arguments, resources, variables and site are as they were, also
    where the site's file has changed since; --site NAME takes today's. What
    you set goes over it; ARGS replace the old arguments. It is a new run:
    it starts from the beginning. A sweep is submitted as one array again,
    or those of its tasks that JOB and --state choose, with their values.

    \b
    Examples:
      hpcrun resubmit last
      hpcrun resubmit 1234 -N 4 -t 2:00:00
      hpcrun resubmit lenet5 --dry-run -- --epochs 40
      hpcrun resubmit 1234 --state failed,timeout -t 8:00:00
      hpcrun resubmit 1234_3-7 --max-parallel 2
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun import repeat
    from hpcrun.jobs import sweeps

    found = sweeps.together(job)
    chosen = found if state is None else _in_states(found, job, state)
    sweep, numbers = found[0].sweep, [task.number or 0 for task in chosen]
    if sweep is None or (len(found) == 1 < len(sweep.tasks) and state is None):  # one task is a job like any other
        old, numbers = chosen[0], []
    else:
        old = sweep
    request = requested(ctx, options, target=None, max_parallel=max_parallel, max_requeue=max_requeue)
    plan = repeat.again(old, request, ctx.meta.get("hpcrun.args"), numbers)
    show(plan, options)
    changed = repeat.changes(old, plan.spec, numbers)
    what = f"job {old.job_id or '-'} ({old.name})"
    if numbers:
        share = "all" if len(numbers) == len(old.tasks) else f"{len(numbers)} of the"
        what = f"{share} {len(old.tasks)} tasks of {old.name} ({sweeps.shown(chosen)})"
    output.message(f"again      {what}, {old.directory}")
    for line in changed or ["nothing"]:
        output.message(f"changed    {line}")
    if not options.dry_run:
        send(plan, ends_with=(signal.SIGINT,) if wait else None, as_json=options.as_json)


def _in_states(runs: "Sequence[Run]", word: str, state: str) -> "list[Run]":
    """Return the runs that are in some states.

    Raises:
        HpcrunError: None is, or there are no such states.
    """
    from hpcrun import schedulers
    from hpcrun.jobs import rows, states

    wanted = states.named(state)
    told = [row.state for row in rows.rows(runs, schedulers.states)]
    chosen = [run for run, name in zip(runs, told, strict=True) if name in wanted]
    if not chosen:
        are = ", ".join(f"{count} {states.plain(name)}" for name, count in Counter(told).items())
        what = f"no task of {word} is so: {are}" if runs[0].sweep else f"{word} is not so: {are.split(maxsplit=1)[1]}"
        raise HpcrunError(what, hint=f"hpcrun status {word} tells more", exit_code=1)
    return chosen
