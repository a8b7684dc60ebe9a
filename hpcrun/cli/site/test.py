"""``hpcrun site test``: test a site with a real job."""

# no `from __future__ import annotations`: Typer reads the annotations as objects

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli import output
from hpcrun.cli.job_parameters import JOB_PANEL, ResourceParameters, option, with_job_parameters
from hpcrun.cli.parameters import Site

if TYPE_CHECKING:
    from hpcrun.doctor.benchmark_records import BenchmarkRecord

Timeout = Annotated[
    str,
    option(
        "--timeout",
        panel=JOB_PANEL,
        metavar="TIME",
        help="Longest time that the job may be pending before it is cancelled; default: 30 (minutes).",
    ),
]
Keep = Annotated[bool, option("--keep", panel=JOB_PANEL, help="Keep the run directory, even if the test succeeds.")]
DryRun = Annotated[bool, option("--dry-run", panel=JOB_PANEL, help="Print the script, and submit nothing.")]
History = Annotated[
    bool, option("--history", panel=JOB_PANEL, help="Show the results of earlier tests, and test nothing.")
]
Json = Annotated[bool, option("--json", panel=JOB_PANEL, help="Print one JSON value.")]


def _test(
    parameters: ResourceParameters,
    site: Site = None,
    timeout: Timeout = "30",
    keep: Keep = False,
    dry_run: DryRun = False,
    history: History = False,
    as_json: Json = False,
) -> None:
    """Test a site with a real job: MPI, its speed, and the speed of each node.

    The job uses the site's modules, environment and launcher like any job,
    by default on two nodes, with one rank per GPU (or one rank per node). The job checks that the ranks communicate,
    and measures MPI_Allreduce, the cores and memory of each node, and the network between nodes, from host memory. The
    job also runs the checks of hpcrun doctor --in-job on each node. The results are recorded in the folder of the site
    file, and compared with earlier results. The exit code is 1 if a step fails.

    \b
    Examples:
      hpcrun site test
      hpcrun site test mycluster -N 4 -p gpu -A project
      hpcrun site test ./mycluster.toml --exclusive --json
      hpcrun site test mycluster --history
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    if history:
        _show_history(site, as_json=as_json)
        return
    from hpcrun import submission
    from hpcrun.cli import short_job
    from hpcrun.cli.site import benchmark
    from hpcrun.doctor.site_job import plan_benchmark
    from hpcrun.sites.lint import rules

    seconds = short_job.parse_timeout(timeout)
    plan = plan_benchmark(site, parameters.explicit())
    for finding in rules.lint_site(plan.loaded_site):
        output.message(f"{finding.severity.upper()}: {rules.format_finding(finding, plan.spec.site.name)}")
    for warning in (*plan.warnings, *(submission.find_missing_software(plan) if dry_run else ())):
        output.message(f"WARNING: {warning}")
    if dry_run:
        if as_json:
            output.value({"spec": plan.spec.as_json(), "script": plan.script})
        else:
            output.log(plan.script, sys.stdout)  # write UTF-8 in any locale
        return
    raise typer.Exit(benchmark.run_benchmark(plan, seconds, keep_directory=keep, as_json=as_json))


test = with_job_parameters(_test, ResourceParameters)


def _show_history(site: str | None, *, as_json: bool) -> None:
    """Print the records of a site's tests, the newest last."""
    from dataclasses import asdict

    from hpcrun.doctor import benchmark_records
    from hpcrun.sites import loader

    loaded_site = loader.load_selected_site(site)
    test_records = benchmark_records.read_records(loaded_site)
    if as_json:
        output.value([asdict(record) for record in test_records])
        return
    if not test_records:
        output.message(
            f"site {loaded_site.site.name} was never tested: {f'hpcrun site test {site or str()}'.strip()} tests it"
        )
        return
    columns = ("tested", "", "nodes", "ranks", "partition", "latency us", "GB/s", "versions")
    output.table(columns, [_format_row(record) for record in test_records])


def _format_row(record: "BenchmarkRecord") -> tuple[Any, ...]:
    from hpcrun.doctor.benchmark_records import format_time
    from hpcrun.jobs.result_format import format_value

    figure_cells = [
        format_value(record.figures[key]) if key in record.figures else "" for key in ("latency_us", "bandwidth_GBps")
    ]
    job_cells = (record.nodelist or record.nodes, record.ranks, record.partition)
    versions = [
        f"{name}{record.versions[key]}" for name, key in (("hpcrun ", "hpcrun"), ("", "mpi")) if key in record.versions
    ]
    return (format_time(record.time), record.outcome, *job_cells, *figure_cells, ", ".join(versions))
