"""``hpcrun site test``."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli import output
from hpcrun.cli.arguments import Site
from hpcrun.cli.options import JOB, ResourceOptions, option, with_job_options

if TYPE_CHECKING:
    from hpcrun.doctor.benchmark_records import BenchmarkRecord

Timeout = Annotated[
    str,
    option(
        "--timeout",
        panel=JOB,
        metavar="TIME",
        help="How long the job may wait in the queue, as --time: then it is cancelled, and told why it waits. "
        "Default 30 (minutes).",
    ),
]
Keep = Annotated[
    bool, option("--keep", panel=JOB, help="Keep the run directory; else that of a test that fails is kept.")
]
DryRun = Annotated[bool, option("--dry-run", panel=JOB, help="Print the script; write and submit nothing.")]
History = Annotated[bool, option("--history", panel=JOB, help="Show what earlier tests found, and test nothing.")]
Json = Annotated[bool, option("--json", panel=JOB, help="Print one JSON value.")]


def _test(
    options: ResourceOptions,
    site: Site = None,
    timeout: Timeout = "30",
    keep: Keep = False,
    dry_run: DryRun = False,
    history: History = False,
    as_json: Json = False,
) -> None:
    """Test a site with a real job: MPI, its speed, and each node's.

    The job takes the ordinary way, with the site's modules, environment and
    launcher, by default to two nodes, with one rank per GPU (or one rank a node).
    Its ranks must find each other; then MPI_Allreduce, each node's cores and
    memory, and the network between nodes are measured, from host memory.
    What it finds is kept beside the site's file, and compared with earlier
    tests. The exit code is 1 where a step fails.

    \b
    Examples:
      hpcrun site test
      hpcrun site test mycluster -N 4 -p gpu -A project
      hpcrun site test ./mycluster.toml --exclusive --json
      hpcrun site test mycluster --history
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    if history:
        _history(site, as_json=as_json)
        return
    from hpcrun import pipeline
    from hpcrun.cli import short_job
    from hpcrun.cli.site import testing
    from hpcrun.doctor.benchmark_job import plan_benchmark
    from hpcrun.sites.lint import rules

    patience = short_job.patience(timeout)
    plan = plan_benchmark(site, options.said())
    for finding in rules.lint_site(plan.found):
        output.message(f"{finding.severity.upper()}: {rules.format_finding(finding, plan.spec.site.name)}")
    for warning in (*plan.warnings, *(pipeline.doubts(plan) if dry_run else ())):
        output.message(f"WARNING: {warning}")
    if dry_run:
        if as_json:
            output.value({"spec": plan.spec.as_json(), "script": plan.script})
        else:
            print(plan.script, end="")
        return
    raise typer.Exit(testing.test(plan, patience, keep=keep, as_json=as_json))


test = with_job_options(_test, ResourceOptions)


def _history(site: str | None, *, as_json: bool) -> None:
    """Show the records of a site, the newest last."""
    from dataclasses import asdict

    from hpcrun.doctor import benchmark_records
    from hpcrun.sites import loader

    found = loader.load_selected_site(site)
    known = benchmark_records.read_records(found)
    if as_json:
        output.value([asdict(record) for record in known])
        return
    if not known:
        output.message(f"site {found.site.name} was never tested; hpcrun site test {site or ''}".rstrip())
        return
    columns = ("tested", "", "nodes", "ranks", "partition", "latency us", "GB/s", "with")
    output.table(columns, [_row(record) for record in known])


def _row(record: "BenchmarkRecord") -> tuple[Any, ...]:
    from hpcrun.doctor.benchmark_records import format_time as time
    from hpcrun.jobs.figures import shown

    figures = [shown(record.figures[key]) if key in record.figures else "" for key in ("latency_us", "bandwidth_GBps")]
    where = (record.nodelist or record.nodes, record.ranks, record.partition)
    versions = [
        f"{name}{record.versions[key]}" for name, key in (("hpcrun ", "hpcrun"), ("", "mpi")) if key in record.versions
    ]
    return (time(record.time), record.outcome, *where, *figures, ", ".join(versions))
