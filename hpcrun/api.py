"""The Python API: submit a job, and attach to an earlier one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from hpcrun.job_options import OPTION_NAMES, show_job_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@show_job_options
def submit(
    target: str | None,
    args: Sequence[str] = (),
    *,
    site: str | None = None,
    environment: Mapping[str, str] | None = None,
    snapshot: bool | None = None,
    sweep: Mapping[str, Iterable[object]] | None = None,
    container: str | Literal[False] | None = None,
    **options: Any,
) -> Any:
    """Submit a job.

    Args:
        target: A bundled workload, a workload folder or a Python script; None for any program, given in ``args``.
        args: The target's own arguments.
        site: A site's name or file; detected where not given.
        environment: Variables for every rank.
        snapshot: Run a copy of the code as it is now; None for what the site says.
        sweep: Values of arguments, such as ``{"lr": [0.1, 0.01]}``: each combination is a task of one array.
        container: The image that ranks run in; False for no container, None for what the site says.
        **options: Fields of `hpcrun.job_options.JobOptions`, such as ``no_gpu=True``, and Slurm's option names, such as
            ``nodes=2, gpus_per_node=4, time="1:00:00"``.

    Returns:
        A submitit job: ``job_id``, ``state``, ``stdout()``, ``cancel()``, and ``result()``, which waits and returns the
        figures of ``result.json``. For a sweep, a list of such jobs, one a task.

    Raises:
        hpcrun.errors.HpcrunError: What was asked for cannot work; nothing was submitted.
    """
    import warnings

    from hpcrun import schedulers, submission
    from hpcrun.request import Request
    from hpcrun.scheduler import find_scheduler

    request = Request(
        target=target,
        args=tuple(args),
        resources={name: value for name, value in options.items() if name not in OPTION_NAMES},
        site=site,
        environment=tuple((environment or {}).items()),
        snapshot=snapshot,
        sweep=tuple((name, tuple(map(str, values))) for name, values in (sweep or {}).items()),
        container=container,
        **{name: options[name] for name in OPTION_NAMES if name in options},
    )
    plan = submission.prepare(request)
    for warning in (*plan.warnings, *find_scheduler(plan.spec.scheduler).check(plan.spec)):
        warnings.warn(warning, stacklevel=2)
    run = submission.create(plan)
    job = schedulers.submit(run)
    return [schedulers.submitit_job(task) for task in run.tasks] or job


def attach(job: str) -> Any:
    """Return the job of an earlier run, from this process or another one.

    Args:
        job: A job id, ``last``, a job's name or a run directory.

    Raises:
        hpcrun.errors.HpcrunError: There is no such run.
    """
    from hpcrun import schedulers
    from hpcrun.jobs import run_selection
    from hpcrun.schedulers.recovery import recover_jobs

    recover_jobs()
    return schedulers.submitit_job(run_selection.select_one(job))
