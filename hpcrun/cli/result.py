"""``hpcrun result``: show the final metrics of jobs."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

from typing import TYPE_CHECKING

from hpcrun.cli import output
from hpcrun.cli.parameters import Jobs, Json
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run

WRITE_RESULT = "hpcrun.run.write_result(accuracy=...) at the end of the script records a result"


def result(jobs: Jobs = None, as_json: Json = False) -> None:
    """Show the metrics that jobs ended with.

    Without a JOB, show the metrics of the last job.

    \b
    Examples:
      hpcrun result
      hpcrun result lenet5 --json
      hpcrun result 'resnet*'
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.jobs import run_selection

    words = jobs or ["last"]
    runs = run_selection.select_runs(words)
    if len(runs) > 1 or len(words) > 1 or not run_selection.selects_one_run(words[0]):
        show_results(runs, as_json=as_json)
        return
    from hpcrun.cli.follow import show_result
    from hpcrun.jobs.run_secrets import masked_result

    run = runs[0]
    if run.result() is None:
        raise _no_result_error(run)
    if as_json:
        output.value(masked_result(run))
    else:
        show_result(run, all_keys=True)


def _no_result_error(run: "Run") -> HpcrunError:
    """Return the error for a job without a result, with the state of the job."""
    record = run.end_record()
    fault = run.faults.get("result.json")
    if fault:
        reason = f"result.json {fault}"
    elif record:
        reason = f"it ended: {record.reason}"
    else:
        reason = "it has not ended" if run.job_id or run.start_by_hand else "it was never submitted"
    job_id = run.job_id or (run.start_by_hand.job_id if run.start_by_hand else "")
    subject = f"job {job_id} ({run.name})" if job_id else str(run.directory)
    message = f"{subject} has no result; {reason}"
    hint = f"hpcrun logs {run.job_id or run.directory}"
    if record and not fault:
        hint = f"hpcrun why {run.job_id or run.directory}" if record.exit_code else WRITE_RESULT
    if (last_epoch := run.last_epoch()).all_values:
        from hpcrun.jobs.progress_text import format_progress
        from hpcrun.watch.format import format_metrics

        texts = filter(None, [format_progress(last_epoch), format_metrics(last_epoch.metrics)])
        message += f". Its last epoch: {'  '.join(texts)}"
    return HpcrunError(message, hint=hint, exit_code=1)


def show_results(runs: "Sequence[Run]", *, as_json: bool = False) -> None:
    """Show the metrics of several jobs as one table; a job without a result has an empty row."""
    from hpcrun.jobs.result_format import RESULT_LABELS, format_value
    from hpcrun.jobs.run_secrets import masked_result

    results = [(run, masked_result(run)) for run in runs]
    swept_names = list(dict.fromkeys(name for run in runs for name in run.values))
    if as_json:
        output.value([{**run.summary(), "result": result or None} for run, result in results])
        return
    keys = dict.fromkeys(key for _, result in results for key in result)
    if not keys:
        hint = f"hpcrun status shows their states and last epochs; {WRITE_RESULT}"
        raise HpcrunError(f"none of these {len(runs)} jobs has a result", hint=hint, exit_code=1)
    columns = [key for key in RESULT_LABELS if key in keys] or [key for key in keys if key != "versions"]
    output.table(
        ("job", "name", *swept_names, *(RESULT_LABELS.get(key, key.replace("_", " ")) for key in columns)),
        [
            (
                run.job_id,
                run.name,
                *(run.values.get(name, "") for name in swept_names),
                *(format_value(result[key]) if key in result else "" for key in columns),
            )
            for run, result in results
        ],
    )
