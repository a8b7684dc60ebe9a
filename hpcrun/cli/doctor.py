"""``hpcrun doctor``: whether this cluster is as its site file says."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli import completion, output
from hpcrun.cli.arguments import Json, Site  # noqa: TC001 - Typer reads the annotations
from hpcrun.cli.doctor_rows import show, values
from hpcrun.errors import HpcrunError
from hpcrun.finding import failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.doctor.context import CheckContext
    from hpcrun.finding import Finding
    from hpcrun.pipeline import Plan

Text = str | None


def doctor(
    site: Site = None,
    same_site: Annotated[
        Text,
        typer.Option("--site", metavar="NAME", help="The same as SITE.", autocompletion=completion.sites),
    ] = None,
    in_job: Annotated[
        bool, typer.Option("--in-job", help="Also run a short job, and look at its nodes from inside.")
    ] = False,
    nodes: Annotated[
        int | None, typer.Option("-N", "--nodes", metavar="N", min=1, help="Nodes of that job; default 2.")
    ] = None,
    partition: Annotated[Text, typer.Option("-p", "--partition", metavar="NAME", help="Partition.")] = None,
    account: Annotated[Text, typer.Option("-A", "--account", metavar="NAME", help="Account that pays.")] = None,
    qos: Annotated[Text, typer.Option("-q", "--qos", metavar="NAME", help="Quality of service.")] = None,
    time: Annotated[
        Text, typer.Option("-t", "--time", metavar="TIME", help="Time limit of that job; default 5 minutes.")
    ] = None,
    gpus_per_node: Annotated[Text, typer.Option("--gpus-per-node", metavar="[TYPE:]N", help="GPUs to look at.")] = None,
    nodelist: Annotated[Text, typer.Option("-w", "--nodelist", metavar="NODES", help="Nodes to look at.")] = None,
    timeout: Annotated[
        str,
        typer.Option(
            "--timeout",
            metavar="TIME",
            help="How long that job may wait in the queue, as --time: then it is cancelled, and told why it waits. "
            "Default 30 (minutes).",
        ),
    ] = "30",
    as_json: Json = False,
) -> None:
    """Look whether this cluster is as its site file says, and tell what to do.

    On the login node: Slurm, partitions, limits, account, GPU types, mpi.type;
    the job's own script, run here with one process: modules, Python, packages,
    MPI library, launcher, CUDA files; run directories, clocks, environment.
    Nothing is submitted, and nothing is left.

    With --in-job a short job with one rank on each node does the same there,
    starts MPI, and what differs between nodes, and from here, is told.
    The run directory of a job that failed is kept.

    Exit code 0: no errors, though perhaps warnings. 1: errors.

    \b
    Examples:
      hpcrun doctor
      hpcrun doctor ./mycluster.toml
      hpcrun doctor --in-job -N 2 --partition gpu --gpus-per-node 4
      hpcrun doctor --json
    """  # noqa: D301 - \\b keeps the lines of the examples as they are
    from hpcrun.doctor import checks
    from hpcrun.doctor.context import create_context as chosen

    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell has this process ignore it
    signal.signal(signal.SIGTERM, _end)
    asked = {
        "nodes": nodes, "partition": partition, "account": account, "qos": qos, "time": time,
        "gpus_per_node": gpus_per_node, "nodelist": nodelist,
    }  # fmt: skip
    if site and same_site:
        raise HpcrunError(f"two sites: {site} and --site={same_site}", hint="name one of them")
    site = site or same_site
    try:
        case = chosen(site, {name: value for name, value in asked.items() if value is not None})
    except HpcrunError as refused:
        raise typer.Exit(_refused(site, refused, as_json=as_json)) from None
    case.in_job = in_job
    run = _job(case, timeout, as_json=as_json) if in_job else None
    rows: list[Finding] = []
    for check in output.progress(checks.login_checks(case), "looking"):
        rows += checks.run_check(case, check)
    if not as_json:
        show(f"Here, on {os.uname().nodename}:", rows)
    inside, more = run(rows) if run else ([], {})
    failed = any(row.severity == "error" for row in (*rows, *inside))
    if as_json:
        told = {"site": case.site.name, "chosen_by": case.found.chosen_by}
        output.value({**told, "ok": not failed, "rows": values(rows), **more})
    raise typer.Exit(int(failed))


def _end(number: int, _frame: object) -> None:
    raise typer.Exit(128 + number)


def _refused(site: str | None, refused: HpcrunError, *, as_json: bool) -> int:
    """Tell why nothing can be looked at, and return the exit code.

    Raises:
        HpcrunError: There is no such site, which is no fault of a file.
    """
    from hpcrun.sites import loader

    if site:
        loader.find_files_of_site(site)
    rows = [failure("site file", refused)]
    if as_json:
        output.value({"site": site, "ok": False, "rows": values(rows)})
    else:
        show("The site file:", rows)
    return 1


def _job(
    case: CheckContext, timeout: str, *, as_json: bool
) -> Callable[[list[Finding]], tuple[list[Finding], dict[str, Any]]]:
    """Return what runs the job, once this host has been looked at.

    Raises:
        HpcrunError: What was typed cannot be, which is told before all else.
    """
    from hpcrun.cli import doctor_job, short_job
    from hpcrun.doctor import in_job

    patience = short_job.patience(timeout)
    try:
        plan: Plan | HpcrunError = in_job.plan_job(case)
    except HpcrunError as refused:
        if case.requested:
            raise
        plan = refused
    return lambda here: doctor_job.inside(case, plan, here, patience, as_json=as_json)
