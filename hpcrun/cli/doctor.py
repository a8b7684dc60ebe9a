"""``hpcrun doctor``: check a cluster against its site file."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli import completion, output
from hpcrun.cli.doctor_table import show_findings
from hpcrun.cli.parameters import Json, Site  # noqa: TC001 - Typer reads the annotations
from hpcrun.errors import HpcrunError
from hpcrun.finding import failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.doctor.context import CheckContext
    from hpcrun.finding import Finding
    from hpcrun.submission import Plan

OptionalText = str | None


def doctor(
    site: Site = None,
    same_site: Annotated[
        OptionalText,
        typer.Option("--site", metavar="NAME", help="The same as SITE.", autocompletion=completion.sites),
    ] = None,
    in_job: Annotated[bool, typer.Option("--in-job", help="Also run a short job, and check its nodes.")] = False,
    nodes: Annotated[
        int | None, typer.Option("-N", "--nodes", metavar="N", min=1, help="Number of nodes of that job; default: 2.")
    ] = None,
    partition: Annotated[OptionalText, typer.Option("-p", "--partition", metavar="NAME", help="Partition.")] = None,
    account: Annotated[OptionalText, typer.Option("-A", "--account", metavar="NAME", help="Account to charge.")] = None,
    qos: Annotated[OptionalText, typer.Option("-q", "--qos", metavar="NAME", help="Quality of service.")] = None,
    time: Annotated[
        OptionalText, typer.Option("-t", "--time", metavar="TIME", help="Time limit of the job; default: 5 minutes.")
    ] = None,
    gpus_per_node: Annotated[
        OptionalText, typer.Option("--gpus-per-node", metavar="[TYPE:]N", help="Number of GPUs to check on each node.")
    ] = None,
    nodelist: Annotated[OptionalText, typer.Option("-w", "--nodelist", metavar="NODES", help="Nodes to check.")] = None,
    timeout: Annotated[
        str,
        typer.Option(
            "--timeout",
            metavar="TIME",
            help="Longest time that the job may be pending before it is cancelled; default: 30 (minutes).",
            show_default=False,
        ),
    ] = "30",
    as_json: Json = False,
) -> None:
    """Check a cluster against its site file, and print what to fix.

    On the login node it checks Slurm, partitions, limits, account, GPU types
    and mpi.type; it runs the job script on this host with one process to
    check modules, Python, packages, MPI library, launcher and CUDA files;
    and it checks run directories, clocks and environment. The doctor submits no job, and removes its temporary files.

    With --in-job it also submits a short job with one rank on each node,
    which runs the same checks, starts MPI, and reports differences between
    the nodes, and between the nodes and this host. The run directory of a failed job is kept.

    Exit code 0: no errors, perhaps warnings. 1: errors.

    \b
    Examples:
      hpcrun doctor
      hpcrun doctor ./mycluster.toml
      hpcrun doctor --in-job -N 2 --partition gpu --gpus-per-node 4
      hpcrun doctor --json
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.doctor import checks
    from hpcrun.doctor.context import create_context

    # handle SIGINT even if a shell made this process ignore it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _exit_on_signal)
    requested_resources = {
        "nodes": nodes, "partition": partition, "account": account, "qos": qos, "time": time,
        "gpus_per_node": gpus_per_node, "nodelist": nodelist,
    }  # fmt: skip
    if site and same_site:
        raise HpcrunError(f"two sites were given: {site} and --site={same_site}", hint="name one of them")
    site = site or same_site
    try:
        context = create_context(
            site, {name: value for name, value in requested_resources.items() if value is not None}
        )
    except HpcrunError as error:
        raise typer.Exit(_report_invalid_site(site, error, as_json=as_json)) from None
    context.in_job = in_job
    run_job = _prepare_job(context, timeout, as_json=as_json) if in_job else None
    rows: list[Finding] = []
    for check in output.progress(checks.login_checks(context), "checking"):
        rows += checks.run_check(context, check)
    if not as_json:
        show_findings(f"On this host, {os.uname().nodename}:", rows)
    job_rows, job_json = run_job(rows) if run_job else ([], {})
    has_errors = any(row.severity == "error" for row in (*rows, *job_rows))
    if as_json:
        site_json = {"site": context.site.name, "chosen_by": context.loaded_site.chosen_by}
        output.value({**site_json, "ok": not has_errors, "rows": [row.as_json() for row in rows], **job_json})
    raise typer.Exit(int(has_errors))


def _exit_on_signal(signal_number: int, _frame: object) -> None:
    raise typer.Exit(128 + signal_number)


def _report_invalid_site(site: str | None, error: HpcrunError, *, as_json: bool) -> int:
    """Print that the site file is not valid, and return the exit code.

    Raises:
        HpcrunError: There is no site of this name.
    """
    from hpcrun.sites import loader

    if site:
        loader.find_files_of_site(site)
    rows = [failure("site file", error)]
    if as_json:
        output.value({"site": site, "ok": False, "rows": [row.as_json() for row in rows]})
    else:
        show_findings("The site file:", rows)
    return 1


def _prepare_job(
    context: CheckContext, timeout: str, *, as_json: bool
) -> Callable[[list[Finding]], tuple[list[Finding], dict[str, Any]]]:
    """Return a function that takes the findings on this host, runs the job, and checks its nodes.

    Raises:
        HpcrunError: The options of the job are not valid.
    """
    from hpcrun.cli import doctor_job, short_job
    from hpcrun.doctor import site_job

    seconds = short_job.parse_timeout(timeout)
    try:
        plan: Plan | HpcrunError = site_job.plan_node_checks(context)
    except HpcrunError as error:
        if context.requested:
            raise
        plan = error
    return lambda host_findings: doctor_job.check_nodes(context, plan, host_findings, seconds, as_json=as_json)
