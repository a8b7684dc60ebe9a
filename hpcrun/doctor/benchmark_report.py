"""The report about a site's benchmark: its steps, regressions and failure."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from hpcrun.doctor import (
    benchmark_files,
    benchmark_records,
    benchmark_regressions,
    benchmark_results,
    checks,
    in_job,
    site_job,
)
from hpcrun.doctor.context import CheckContext
from hpcrun.frozen import frozen
from hpcrun.schedulers.slurm_client import SlurmClient
from hpcrun.sites.lint import rules
from hpcrun.why.explanation import explain

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.doctor.benchmark_records import BenchmarkRecord
    from hpcrun.doctor.benchmark_regressions import Regression
    from hpcrun.finding import Finding
    from hpcrun.jobs.runs import Run
    from hpcrun.submission import Plan
    from hpcrun.why.explanation import Explanation

LOG_LINES = 15


@frozen
class BenchmarkReport:
    """The report about a benchmark of a site.

    Attributes:
        run: The benchmark's job.
        steps: A finding for each step.
        record: The benchmark's record.
        node_problems: Warnings and errors of the doctor's checks about the job's nodes.
        slow: The regressions.
        compared_records: The number of earlier benchmarks with which this benchmark was compared.
        changed: Versions that changed since the last earlier benchmark, as (old, new) by name.
        explanation: The explanation of the failure; None if the benchmark succeeded.
        log: The last lines of the job's log; empty if the benchmark succeeded.
        warnings: Lint findings about the site file, which may explain a failure.
        file: The file with the record; None if it was not written.
    """

    run: Run
    steps: list[Finding]
    record: BenchmarkRecord
    node_problems: list[Finding]
    slow: list[Regression]
    compared_records: int
    changed: dict[str, tuple[str, str]]
    explanation: Explanation | None
    log: list[str]
    warnings: list[Finding]
    file: Path | None

    def as_json(self) -> dict[str, Any]:
        """Return the report as values for JSON."""
        steps = [
            dict(zip(("name", "state", "says"), step, strict=True)) for step in benchmark_results.step_table(self.steps)
        ]
        nodes = benchmark_files.read_nodes(self.run)
        record = {name: value for name, value in asdict(self.record).items() if name not in {"failed", "slow"}}
        return {
            "ok": not self.record.failed, "failed": self.record.failed,
            "steps": steps,
            **record, "pairs": [asdict(pair) for pair in nodes.pairs] if nodes else [],
            "node_problems": [one.as_json() for one in self.node_problems],
            "slow": [{**asdict(one), "says": one.sentence} for one in self.slow],
            "compared_with": self.compared_records,
            "changed": self.changed, "why": self.explanation.as_json() if self.explanation else None, "log": self.log,
            "warnings": [one.as_json() for one in self.warnings], "record": self.file and str(self.file),
        }  # fmt: skip


def create_report(run: Run, plan: Plan, pending_reason: Explanation | None, timeout: float) -> BenchmarkReport:
    """Evaluate a benchmark, and append it to the site's records if its job has run.

    Args:
        run: The benchmark's completed job.
        plan: The plan of the job.
        pending_reason: The reason why the job was still pending when it was cancelled; None if it started.
        timeout: The timeout in the queue, in seconds.
    """
    loaded_site, explanation = plan.loaded_site, pending_reason or _explain_failure(run)
    failure = explanation.diagnosis.summary if explanation else ""
    if explanation and not failure:  # the job completed
        failure = f"its results are not in {run.directory}: do the nodes see the same run_root as this host?"
    if pending_reason:
        failure = site_job.pending_finding(pending_reason, timeout).what
    steps = benchmark_results.create_steps(run, failure, explanation.diagnosis.fix if explanation else "")
    record = benchmark_results.create_record(run, _slurm_version(run), steps[-1].check if failure else "")
    compared_records = benchmark_regressions.comparable_records(record, benchmark_records.read_records(loaded_site))
    regressions = [] if failure else benchmark_regressions.find_regressions(record, compared_records)
    record = replace(record, slow="; ".join(one.sentence for one in regressions))
    return BenchmarkReport(
        run=run,
        steps=benchmark_regressions.mark_regressions(steps, regressions),
        record=record,
        node_problems=checks.find_node_problems(
            CheckContext(loaded_site, plan, None), run, in_job.read_node_reports(run)
        ),
        slow=regressions,
        compared_records=len(compared_records),
        changed=benchmark_regressions.changed_versions(record, compared_records),
        explanation=explanation,
        log=_last_lines(run) if failure else [],
        warnings=rules.lint_site(loaded_site),
        file=None if pending_reason else benchmark_records.append_record(loaded_site, record),
    )


def _explain_failure(run: Run) -> Explanation | None:
    def are_results_written() -> bool:
        return all(benchmark_results.describe_step(run, step) for step in benchmark_results.RESULT_STEPS)

    is_complete = site_job.wait_for_results(run, are_results_written)
    return None if is_complete and site_job.has_succeeded(run) else explain(run)


def _slurm_version(run: Run) -> str | None:
    """Return Slurm's version; None without Slurm, or if Slurm's commands do not print a version."""
    if not run.scheduler.uses_slurm:
        return None
    from hpcrun.doctor import discover_commands, discover_slurm

    config = SlurmClient(run.slurm_conf).query(discover_commands.SLURM_COMMANDS["config"])
    return discover_slurm.parse_config(config.text).get("SLURM_VERSION")


def _last_lines(run: Run) -> list[str]:
    logs = [log for stream in ("out", "err") if (log := run.log(stream)) and log.exists()]
    lines = [line.rstrip() for log in logs for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-LOG_LINES:]
