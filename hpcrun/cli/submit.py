"""``hpcrun submit`` and ``hpcrun run``: submit a job, or run it in the foreground, with the same options."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

import re
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli import completion, output
from hpcrun.cli.job_parameters import JOB_PANEL, JobParameters, SplitCommand, option, with_job_parameters
from hpcrun.errors import HpcrunError
from hpcrun.scheduler import find_scheduler
from hpcrun.sweep import parse_axis

if TYPE_CHECKING:
    from hpcrun.request import Request
    from hpcrun.submission import Plan

COMMAND_CLASS = SplitCommand
Target = Annotated[
    str | None,
    typer.Argument(
        metavar="TARGET",
        show_default=False,
        help="Workload, workload folder or Python script; any other program goes after --.",
        autocompletion=completion.workloads,
    ),
]
Wait = Annotated[
    bool,
    option(
        "-W",
        "--wait",
        panel=JOB_PANEL,
        help="Print the log until the job ends, and exit with its exit code.",
    ),
]
Hostfile = Annotated[
    Path | None,
    option(
        "--hostfile",
        panel=JOB_PANEL,
        metavar="FILE",
        help="File of hosts to run on over ssh, with lines such as n1 slots=2.",
    ),
]
Sweep = Annotated[
    list[str],
    option(
        "--sweep",
        panel=JOB_PANEL,
        metavar="NAME=VALUES",
        help="Run one task for each value, as lr=0.1,0.01 or seed=1..5 (repeatable, for a grid).",
    ),
]


@with_job_parameters
def submit(
    ctx: typer.Context,
    parameters: JobParameters,
    target: Target = None,
    wait: Wait = False,
    sweep: Sweep = [],  # noqa: B006 - Typer copies it
) -> None:
    """Submit a job to the cluster.

    TARGET is a bundled workload, a workload folder or a Python script; arguments of the program follow --. Without a
    TARGET, any program and its arguments follow --. sbatch gets only the options that you or the site set.

    With --wait, Ctrl+C cancels the job. A value of --sweep replaces {NAME} in
    the arguments, or is appended as --NAME=VALUE.

    \b
    Examples:
      hpcrun submit resnet50 --nodes 2 --gpus-per-node 4
      hpcrun submit lenet5 --ntasks 2 --wait -- --epochs 3
      hpcrun submit ./train.py -N 2 -t 1:00:00 -p gpu -- --lr 0.1
      hpcrun submit ./train.py -t 8:00:00 --max-requeue 5
      hpcrun submit allreduce -N 2 --wait
      hpcrun submit ./train.py -N 2 --container ~/images/tf.sif
      hpcrun submit -N 2 --ntasks-per-node 8 -- ./a.out input
      hpcrun submit lenet5 --sweep lr=0.1,0.01 --sweep seed=1..5 --max-parallel 4
      hpcrun submit resnet50 -N 2 --dry-run > job.sh
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    plan = _prepare(ctx, parameters, target, sweep=tuple(map(parse_axis, sweep)))
    if not parameters.dry_run:
        submit_plan(plan, cancel_signals=(signal.SIGINT,) if wait else None, as_json=parameters.as_json)


@with_job_parameters
def run(ctx: typer.Context, parameters: JobParameters, target: Target = None, hostfile: Hostfile = None) -> None:
    """Run a job now, in the foreground.

    The ranks run on the nodes of the current allocation (salloc, a Carme
    session), over ssh on the hosts of --hostfile, or on this host. TARGET
    and options are those of hpcrun submit. Ctrl+C stops all ranks.

    \b
    Examples:
      hpcrun run lenet5 -n 2
      hpcrun run --hostfile hosts --n-per-node 2 ./model.py -- --batch_size=64
      hpcrun run -n 4 -- ./a.out input
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    plan = _prepare(ctx, parameters, target, run_now=True, hostfile=hostfile)
    if not parameters.dry_run:
        # a job in the foreground ends with this process
        submit_plan(plan, cancel_signals=_TERMINATING_SIGNALS, as_json=parameters.as_json)


_TERMINATING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""Signals with which users, shells and batch systems end a foreground process, or announce its end."""


def _prepare(ctx: typer.Context, parameters: JobParameters, target: str | None, **more: Any) -> "Plan":
    from hpcrun import job_program, submission

    if target and "=" in target and not Path(target).exists():
        raise HpcrunError(f"there is no workload {target!r}", hint=f"-x takes one variable; repeat it: -x {target}")
    program_words = ctx.meta.get("hpcrun.args", ())
    if target and (program_words or Path(target).is_file()) and not target.endswith(".py"):
        from hpcrun.cli.job_mistakes import require_workload

        require_workload(ctx, sys.argv[1:])
    request = make_request(ctx, parameters, target=target, **more)
    try:
        plan = submission.prepare(request)
    except job_program.SecondLauncherError as error:
        from hpcrun.cli.job_mistakes import explain_second_launcher

        raise explain_second_launcher(error, ctx, sys.argv[1:]) from None
    for name, value in request.environment:
        if another := re.search(r"[, ]([A-Z][A-Z0-9_]*)=", value):
            warning = f"WARNING: -x {name}={value} sets one variable; for {another[1]}, repeat it:"
            remaining_pairs = shlex.quote(value[another.start() + 1 :])
            output.message(f"{warning} -x {name}={shlex.quote(value[: another.start()])} -x {remaining_pairs}")
    for word in _find_misplaced_options(ctx, target, request.args):
        if word != "--dry-run" or not parameters.dry_run:
            output.message(f"WARNING: {word} after -- is an argument of the program; before --, it is hpcrun's")
    show_plan(plan, parameters)
    return plan


def _find_misplaced_options(ctx: typer.Context, target: str | None, args: tuple[str, ...]) -> list[str]:
    """Return the options of hpcrun that were typed after ``--``, and that the script does not mention."""
    misplaced_options = [word for word in args if word == "--dry-run"]
    if target and target.endswith(".py"):
        text = Path(target).read_bytes().decode(errors="replace").replace("_", "-")
        known_options = {
            name for param in ctx.command.params for name in param.opts if param.param_type_name == "option"
        }
        names = {word.partition("=")[0]: word for word in args if word.startswith("-")}
        misplaced_options += [
            word for name, word in names.items() if name in known_options and name.removeprefix("--") not in text
        ]
    return list(dict.fromkeys(misplaced_options))


def make_request(ctx: typer.Context, parameters: JobParameters, **more: Any) -> "Request":
    """Return the request of a command line, with only the values that the user set."""
    from hpcrun.request import Request

    return Request(
        args=ctx.meta.get("hpcrun.args", ()),
        resources=parameters.explicit(),
        site=parameters.site,
        environment=parameters.environment(),
        snapshot=parameters.snapshot,
        container=parameters.container,
        **parameters.options.job_options(),
        **more,
    )


def show_plan(plan: "Plan", parameters: JobParameters) -> None:
    """Print the warnings of a plan; for a dry run also the summary and the job script."""
    from hpcrun import frameworks, node_launch, submission

    warnings = (*plan.warnings, *(submission.find_missing_software(plan) if parameters.dry_run else ()))
    for warning in warnings if plan.spec.log_level != "ERROR" else ():
        output.message(f"WARNING: {warning}")
    if plan.spec.log_level != "ERROR":
        descriptions = (node_launch.describe, frameworks.describe_framework, frameworks.describe_gpus)
        for line in filter(None, [describe(plan.spec) for describe in descriptions]):
            output.message(line)
    if parameters.dry_run or plan.spec.log_level in {"DEBUG", "INFO"}:
        for line in _summary(plan):
            output.message(line)
    if parameters.dry_run:
        if parameters.as_json:
            output.value({"spec": plan.spec.as_json(), "script": plan.script})
        else:
            output.log(plan.script, sys.stdout)  # write the exact bytes in any locale


def _summary(plan: "Plan") -> list[str]:
    from hpcrun import secrets
    from hpcrun.schedulers.environment import inherited_slurm_variables

    spec, resources = plan.spec, plan.spec.resources
    resource_text = ", ".join(f"{name}={value}" for name, value in resources.explicit().items())
    lines = [
        f"site       {spec.site.name} ({plan.loaded_site.chosen_by})",
        f"resources  {secrets.mask(resource_text)}",
        f"ranks      {resources.ranks}, started by {spec.launcher}",
        f"directory  {spec.run_dir} (not created yet)",
    ]
    if find_scheduler(spec.scheduler).uses_slurm and spec.site.slurm_conf:
        lines.insert(1, f"Slurm      {spec.site.slurm_conf} (site key slurm_conf)")
    if spec.container:
        lines.insert(-1, f"container  {secrets.mask(spec.container.image or '')}, started by {spec.container.runtime}")
    if spec.tasks:
        lines.insert(1, f"tasks      {len(spec.tasks)}, {spec.max_parallel or 'any number'} at a time")
    overriding_variables = [name for name in inherited_slurm_variables() if name.startswith("SBATCH_")]
    if overriding_variables and find_scheduler(spec.scheduler).uses_slurm:
        lines.append(
            f"ignored    {', '.join(overriding_variables)}: set in your environment; it would override the script"
        )
    return lines


def submit_plan(plan: "Plan", *, cancel_signals: tuple[signal.Signals, ...] | None, as_json: bool) -> None:
    """Submit a plan, and follow the job if signals are given.

    Args:
        plan: The job to submit.
        cancel_signals: Signals that cancel the followed job; None to submit without following.
        as_json: Print one JSON value.

    Raises:
        Exit: With the exit code of the followed job.
    """
    from hpcrun import schedulers, submission

    spec = plan.spec
    for warning in find_scheduler(spec.scheduler).check(spec):
        output.message(f"WARNING: {warning}")
    run = submission.create(plan)
    if cancel_signals:
        from hpcrun.cli import follow, follow_sweep

        follow_job = follow_sweep.follow if spec.tasks else follow.follow
        raise typer.Exit(follow_job(run, cancel_signals=cancel_signals, as_json=as_json))
    job_id = schedulers.submit(run).job_id
    if as_json:
        output.value(run.summary())
        return
    if spec.tasks:
        count = f"{len(spec.tasks)} task{'s' if len(spec.tasks) > 1 else ''}"
        output.message(f"Submitted {count} of {spec.name} to site {spec.site.name}; directory: {spec.run_dir}")
        output.message(f"Follow them with: hpcrun watch {job_id}; compare them with: hpcrun result {job_id}")
    else:
        output.message(f"Submitted {spec.name} to site {spec.site.name}; run directory: {spec.run_dir}")
        output.message(f"Follow it with: hpcrun logs -f {job_id}")
    if not sys.stdout.isatty():
        print(job_id)
