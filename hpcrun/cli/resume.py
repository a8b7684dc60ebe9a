"""``hpcrun resume``: continue a stopped run from its checkpoint."""

from __future__ import annotations

from hpcrun.cli import output
from hpcrun.cli.parameters import JobOrSweep, Json  # noqa: TC001 - Typer reads the annotations


def resume(job: JobOrSweep = "last", as_json: Json = False) -> None:
    """Continue a stopped or failed run from its checkpoint.

    The run's script starts again as another job, in the same run directory and
    with the same log. Programs that write checkpoints (hpcrun.train, the workloads)
    continue from the last one. For a sweep, the tasks that stopped or failed
    continue. To start a new run from the beginning, use hpcrun resubmit.

    \b
    Examples:
      hpcrun resume
      hpcrun resume 1234
      hpcrun resume 1234_3-7
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.jobs import sweep_tasks
    from hpcrun.schedulers import resuming

    runs = resuming.find_resumable_runs(sweep_tasks.select_tasks(job), output.message)
    resumed_runs = []
    for run in runs:
        old_job_id = run.job_id
        job_id = resuming.resume(run)
        resumed_runs.append(
            {"job_id": job_id, "run_dir": str(run.directory), "checkpoint": resuming.has_checkpoint(run)}
        )
        continuation = (
            "continues from its checkpoint" if resumed_runs[-1]["checkpoint"] else "has no checkpoint: it starts again"
        )
        output.message(f"job {old_job_id} ({run.name}) is resumed as job {job_id}, which {continuation}")
    if as_json:
        output.value(resumed_runs if len(runs) > 1 else resumed_runs[0])
    else:
        output.message(f"Follow it with: hpcrun logs -f {resumed_runs[0]['job_id']}")
