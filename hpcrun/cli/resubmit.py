"""``hpcrun resubmit``: submit an earlier run, a sweep, or some tasks of a sweep again."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

import signal
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli import completion, output
from hpcrun.cli.job_parameters import JobParameters, SplitCommand, with_job_parameters
from hpcrun.cli.parameters import JOB_OR_SWEEP_HELP, States, recover_submissions
from hpcrun.cli.submit import Wait, make_request, show_plan, submit_plan
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.request import Request

COMMAND_CLASS = SplitCommand
OldJob = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help=JOB_OR_SWEEP_HELP,
        show_default=False,
        autocompletion=completion.jobs,
        callback=recover_submissions,
    ),
]


@with_job_parameters
def resubmit(
    ctx: typer.Context,
    parameters: JobParameters,
    job: OldJob,
    state: States = None,
    wait: Wait = False,
    fix: Annotated[
        bool,
        typer.Option("--fix", help="Apply hpcrun why's changes: more time or memory, nodes to exclude."),
    ] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Submit the changes of --fix without confirmation.")] = False,
) -> None:
    """Submit an earlier run again, from its record.

    Program, arguments, resources, variables and site stay as recorded, even
    if the site file has changed; --site NAME uses the current file. Your
    options override the record; ARGS replace the old arguments. The new run
    starts from the beginning. A sweep is submitted again as one job array, with all tasks or only those that JOB and
    --state select. --fix requests more time or memory, or excludes the node that failed.

    \b
    Examples:
      hpcrun resubmit last
      hpcrun resubmit 1234 -N 4 -t 2:00:00
      hpcrun resubmit lenet5 --dry-run -- --epochs 40
      hpcrun resubmit 1234 --state failed,timeout -t 8:00:00
      hpcrun resubmit 1234_3-7 --max-parallel 2
      hpcrun resubmit 1234 --fix
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun import resubmit
    from hpcrun.jobs import sweep_tasks

    runs = sweep_tasks.select_tasks(job)
    selected_runs = runs if state is None else _select_states(runs, job, state)
    sweep, task_numbers = runs[0].sweep, [task.task_number or 0 for task in selected_runs]
    # a single task is submitted as an ordinary job
    if sweep is None or (len(runs) == 1 < len(sweep.tasks) and state is None):
        old_run, task_numbers = selected_runs[0], []
    else:
        old_run = sweep
    request = make_request(ctx, parameters, target=None)
    if fix:
        request = _with_proposal(request, selected_runs)
    plan = resubmit.plan_resubmission(old_run, request, ctx.meta.get("hpcrun.args"), task_numbers)
    show_plan(plan, parameters)
    changes = resubmit.describe_changes(old_run, plan.spec, task_numbers)
    subject = f"job {old_run.job_id or '-'} ({old_run.name})"
    if task_numbers:
        count = "all" if len(task_numbers) == len(old_run.tasks) else f"{len(task_numbers)} of the"
        subject = (
            f"{count} {len(old_run.tasks)} tasks of {old_run.name} ({sweep_tasks.abbreviate_task_ids(selected_runs)})"
        )
    output.message(f"resubmits  {subject}, {old_run.directory}")
    for line in changes or ["nothing"]:
        output.message(f"changed    {line}")
    if fix and not (yes or parameters.dry_run):
        _confirm(subject)
    if not parameters.dry_run:
        submit_plan(plan, cancel_signals=(signal.SIGINT,) if wait else None, as_json=parameters.as_json)


def _with_proposal(request: "Request", runs: "Sequence[Run]") -> "Request":
    """Add to a request the resources that prevent the failures of runs; options of the request take precedence.

    Raises:
        HpcrunError: No change of resources prevents the failures.
    """
    from hpcrun.resources import MEMORY_OPTIONS
    from hpcrun.why.explanation import explain_all
    from hpcrun.why.proposal import propose

    proposal = propose(list(explain_all(runs)))
    typed_options = set(request.resources)
    typed_options |= set(MEMORY_OPTIONS) if typed_options & set(MEMORY_OPTIONS) else set()
    changes = {name: value for name, value in proposal.changes.items() if name not in typed_options}
    options = " ".join(f"--{name.replace('_', '-')}={value}" for name, value in changes.items())
    output.message(f"fix        {options or 'your options'}, because {proposal.cause}")
    return replace(request, resources={**changes, **request.resources})


def _confirm(subject: str) -> None:
    """Ask once for confirmation.

    Raises:
        HpcrunError: There is no terminal to ask on.
        Exit: The user declined.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        hint = "--yes submits it; --dry-run shows it"
        raise HpcrunError(f"resubmitting {subject} needs confirmation, and there is no terminal to ask on", hint=hint)
    if not typer.confirm("Submit it with these changes?", err=True):
        output.message("nothing was submitted")
        raise typer.Exit(1)


def _select_states(runs: "Sequence[Run]", job: str, state: str) -> "list[Run]":
    """Return the runs whose state is in a comma-separated list.

    Args:
        runs: A single run, or tasks of one sweep.
        job: The text by which the user selected the runs.
        state: The list of states.

    Raises:
        HpcrunError: No run matches, or a state is unknown.
    """
    from hpcrun import schedulers
    from hpcrun.jobs import states, status_rows

    wanted_states = states.parse_states(state)
    names = [row.state for row in status_rows.build_rows(runs, schedulers.query_states)]
    selected_runs = [run for run, name in zip(runs, names, strict=True) if name in wanted_states]
    if not selected_runs:
        if runs[0].sweep:
            counts = ", ".join(f"{count} {states.describe_state(name)}" for name, count in Counter(names).items())
            message = f"no task of {job} matches --state {state}: {counts}"
        else:
            message = f"{job} does not match --state {state}: it is {states.describe_state(names[0])}"
        raise HpcrunError(message, hint=f"hpcrun status {job} shows it", exit_code=1)
    return selected_runs
