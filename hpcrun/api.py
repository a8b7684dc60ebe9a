"""The Python API: functions to submit a job, and to attach to an earlier job."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hpcrun import resource_hints
from hpcrun.errors import HpcrunError, sanitize
from hpcrun.job_options import OPTION_NAMES, show_job_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.states import State
    from hpcrun.sweep import Axis

_RENAMED_OPTIONS = {"env": "environment", "variables": "environment", **resource_hints.NAMES_BY_SYNONYM}
"""Options of other libraries, and their names in hpcrun."""
_OPTION_ADVICE = {
    "dry_run": "the command line has it: hpcrun submit ... --dry-run",
    "wait": "hpcrun.submit(...).result() waits for the job",
    "block": "hpcrun.submit(...).result() waits for the job",
}


@show_job_options
def submit(
    target: str | Path | None,
    args: Sequence[object] = (),
    *,
    site: str | None = None,
    environment: Mapping[str, object] | None = None,
    snapshot: bool | None = None,
    sweep: Mapping[str, str | Iterable[object]] | None = None,
    container: str | Literal[False] | None = None,
    quiet: bool = False,
    **options: Any,
) -> Any:
    """Submit a job.

    Args:
        target: A bundled workload, a workload folder or a Python script; None for any program, given in ``args``.
        args: The arguments of the target.
        site: A site's name or file; None to detect it.
        environment: Environment variables of all ranks.
        snapshot: Whether the job runs a copy of the current code; None: the site's default.
        sweep: Values of arguments, such as ``{"lr": [0.1, 0.01], "seed": "1..5"}``; each combination of values is a
            task of a job array.
        container: The container image in which the ranks run; False for no container, None for the site's default.
        quiet: Whether ``result()`` prints no messages about the waiting job to stderr.
        **options: Fields of `hpcrun.job_options.JobOptions`, such as ``no_gpu=True``, and Slurm's option names, such as
            ``nodes=2, gpus_per_node=4, time="1:00:00"``.

    Returns:
        A submitit job with ``job_id``, ``state``, ``stdout()``, ``cancel()`` and ``result()``, which waits for the job
        and returns the values of ``result.json``. For a sweep, a list of jobs, one for each task.

    Raises:
        hpcrun.errors.HpcrunError: The job cannot run; nothing was submitted.
    """
    import warnings

    from hpcrun import schedulers, submission
    from hpcrun.request import Request
    from hpcrun.scheduler import find_scheduler

    _require_valid_types(target, args, environment, sweep)
    for name in options:
        hint = f"did you mean {_RENAMED_OPTIONS[name]}?" if name in _RENAMED_OPTIONS else _OPTION_ADVICE.get(name)
        if hint:
            raise HpcrunError(f"unknown option {name!r}", hint=hint)
    program, *words = str(target or "").split() or [""]
    if words and not Path(str(target)).exists():
        hint = (
            f"hpcrun.submit({program!r}, {words})"
            if program.endswith(".py")
            else f"hpcrun.submit(None, {[program, *words]})"
        )
        raise HpcrunError(f"there is no workload, folder or script {str(target)!r}", hint=hint)
    request = Request(
        target=target if target is None else str(target),
        args=tuple(map(str, args)),
        resources={name: value for name, value in options.items() if name not in OPTION_NAMES},
        site=site,
        environment=tuple((name, str(value)) for name, value in (environment or {}).items()),
        snapshot=snapshot,
        sweep=tuple(_sweep_axis(name, values) for name, values in (sweep or {}).items()),
        container=container,
        **{name: options[name] for name in OPTION_NAMES if name in options},
    )
    plan = submission.prepare(request)
    for warning in (*plan.warnings, *find_scheduler(plan.spec.scheduler).check(plan.spec)):
        warnings.warn(warning, stacklevel=2)
    run = submission.create(plan)
    job = schedulers.submit(run)
    jobs = [schedulers.submitit_job(task) for task in run.tasks]
    for one in () if quiet else jobs or [job]:
        _print_wait_messages(one)
    return jobs or job


def _require_valid_types(target: object, args: object, environment: object, sweep: object) -> None:
    """Raise an error if an argument of `submit` does not have the type that its docstring names."""
    if isinstance(target, list | tuple):
        words = [str(word) for word in target]
        is_script = words[0].startswith("python") and words[1:2] and words[1].endswith(".py") if words else False
        program, arguments = (repr(words[1]), words[2:]) if is_script else ("None", words)
        hint = f"hpcrun.submit({program}{f', {arguments}' if arguments else ''})"
        raise HpcrunError(f"target={target!r} is a list", hint=hint)
    if not isinstance(target, str | Path | None):
        problem = f"target is a {type(target).__name__}, and no workload, script or program"
        raise HpcrunError(problem, hint='write the code into a file: hpcrun.submit("train.py")')
    if isinstance(args, str):
        raise HpcrunError(f"args={args!r} is one text, and no list of arguments", hint=f"args={args.split()}")
    if isinstance(args, Mapping) or not isinstance(args, Iterable):
        words = [f"--{name}={value}" for name, value in args.items()] if isinstance(args, Mapping) else [str(args)]
        raise HpcrunError(f"args={args!r} is no list of arguments", hint=f"args={words}")
    for name, value, example in (
        ("environment", environment, {"OMP_NUM_THREADS": "4"}),
        ("sweep", sweep, {"lr": [0.1, 0.01], "seed": "1..5"}),
    ):
        if not isinstance(value, Mapping | None):
            raise HpcrunError(f"{name}={value!r} is no dictionary", hint=f"{name}={example}")


def _sweep_axis(name: str, values: str | Iterable[object]) -> Axis:
    """Return an axis of a sweep from a list of values, or from a string as on the command line."""
    from hpcrun.sweep import parse_axis

    if isinstance(values, str):
        return parse_axis(f"{name}={values}")
    if not isinstance(values, Iterable):
        raise HpcrunError(f"sweep: {name}={values!r} is not a list of values", hint=f'sweep={{"{name}": [{values!r}]}}')
    return name, tuple(map(str, values))


def _print_wait_messages(job: Any) -> None:
    """Make ``wait()`` of a submitit job print the job's state, the start of rank 0, and the progress to stderr."""
    from hpcrun.jobs.runs import Run
    from hpcrun.watch.wait_messages import WaitMessages

    messages = WaitMessages(Run(job.directory))

    def report(state: State) -> None:
        for text in (messages.describe_state(state), messages.describe_start(), messages.describe_progress()):
            if text:
                print(sanitize(text), file=sys.stderr, flush=True)

    job.on_wait = report


def attach(job: str | int, *, quiet: bool = False) -> Any:
    """Return the submitit job of an earlier run, which any process may have submitted.

    Args:
        job: A job id, ``last``, a job's name or a run directory.
        quiet: Whether ``result()`` prints no messages about the waiting job to stderr.

    Raises:
        hpcrun.errors.HpcrunError: No run matches ``job``.
    """
    from hpcrun import schedulers
    from hpcrun.jobs import run_selection
    from hpcrun.schedulers.recovery import recover_jobs

    recover_jobs()
    submitit_job = schedulers.submitit_job(run_selection.select_one(str(job)))
    if not quiet:
        _print_wait_messages(submitit_job)
    return submitit_job
