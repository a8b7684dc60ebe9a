"""hpcrun: submit data-parallel Keras training to any Slurm cluster, from one validated site file.

import hpcrun

job = hpcrun.submit("lenet5", nodes=2)
job.result()["test_accuracy"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from hpcrun.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["__version__", "attach", "submit"]


def submit(
    target: str | None,
    args: Sequence[str] = (),
    *,
    site: str | None = None,
    environment: Mapping[str, str] | None = None,
    no_gpu: bool = False,
    output_on_all_ranks: bool = False,
    log_level: str = "WARNING",
    fusion_threshold_kb: int | None = None,
    cpu_bind: str | None = None,
    snapshot: bool | None = None,
    sweep: Mapping[str, Iterable[object]] | None = None,
    max_parallel: int | None = None,
    max_requeue: int | None = None,
    container: str | Literal[False] | None = None,
    **resources: Any,
) -> Any:
    """Submit a job.

    Args:
        target: A bundled workload, a workload folder or a Python script; None for any program, given in ``args``.
        args: The target's own arguments.
        site: A site's name or file; detected where not given.
        environment: Variables for every rank.
        no_gpu: Use no GPU, even where there are some.
        output_on_all_ranks: Write every rank's output to the job's log, not only rank 0's.
        log_level: DEBUG, INFO, WARNING or ERROR.
        fusion_threshold_kb: Size in KB of the pieces that hpcrun.train sends gradients in; 0 for one message a tensor.
        sweep: Values of arguments, such as ``{"lr": [0.1, 0.01]}``: each combination is a task of one array.
        max_parallel: How many tasks of a sweep run at the same time.
        cpu_bind: What each rank is bound to: cores, sockets or none; None for what the site says.
        snapshot: Run a copy of the code as it is now; None for what the site says.
        max_requeue: How often the job may go back to the queue before its time limit, to go on from its checkpoint.
        container: The image that ranks run in; False for no container, None for what the site says.
        **resources: Slurm's option names, such as ``nodes=2, gpus_per_node=4, time="1:00:00"``.

    Returns:
        A submitit job: ``job_id``, ``state``, ``stdout()``, ``cancel()``, and ``result()``, which waits and returns the
        figures of ``result.json``. For a sweep, a list of such jobs, one a task.

    Raises:
        hpcrun.errors.HpcrunError: What was asked for cannot work; nothing was submitted.
    """
    import warnings

    from hpcrun import schedulers, submission
    from hpcrun.request import Request

    request = Request(
        target=target,
        args=tuple(args),
        resources=resources,
        site=site,
        environment=tuple((environment or {}).items()),
        no_gpu=no_gpu,
        output_on_all_ranks=output_on_all_ranks,
        log_level=log_level,
        fusion_threshold_kb=fusion_threshold_kb,
        cpu_bind=cpu_bind,
        snapshot=snapshot,
        sweep=tuple((name, tuple(map(str, values))) for name, values in (sweep or {}).items()),
        max_parallel=max_parallel,
        max_requeue=max_requeue,
        container=container,
    )
    plan = submission.prepare(request)
    for warning in plan.warnings:
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
