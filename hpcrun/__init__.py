"""hpcrun: submit data-parallel Keras training to any Slurm cluster, from one validated site file.

import hpcrun

job = hpcrun.submit("lenet5", nodes=2)
job.result()["test_accuracy"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcrun.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["__version__", "attach", "submit"]


def submit(
    target: str | None,
    args: Sequence[str] = (),
    *,
    site: str | None = None,
    environment: Mapping[str, str] | None = None,
    **resources: Any,
) -> Any:
    """Submit a job.

    Args:
        target: A bundled workload, a workload folder or a Python script; None for any program, given in ``args``.
        args: The target's own arguments.
        site: A site's name or file; detected where not given.
        environment: Variables for every rank.
        **resources: Slurm's option names, such as ``nodes=2, gpus_per_node=4, time="1:00:00"``.

    Returns:
        A submitit job: ``job_id``, ``state``, ``stdout()``, ``cancel()``, and ``result()``, which waits and returns the
        figures of ``result.json``.

    Raises:
        hpcrun.errors.HpcrunError: What was asked for cannot work; nothing was submitted.
    """
    from hpcrun import pipeline, schedulers

    request = pipeline.Request(target, tuple(args), resources, site, tuple((environment or {}).items()))
    return schedulers.executor(pipeline.create(pipeline.prepare(request))).submit_script()


def attach(job: str) -> Any:
    """Return the job of an earlier run, from this process or another one.

    Args:
        job: A job id, ``last``, a job's name or a run directory.

    Raises:
        hpcrun.errors.HpcrunError: There is no such run.
    """
    from hpcrun import schedulers
    from hpcrun.jobs import runs

    return schedulers.job(runs.find(job))
