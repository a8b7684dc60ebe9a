"""From a request to a job, in named steps: site, workload, resources, check, spec, script, run directory, submit."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun import __version__, launchers, schedulers, workload
from hpcrun.allocation import Allocation
from hpcrun.errors import HpcrunError
from hpcrun.gpus import on_this_host
from hpcrun.jobs import runs
from hpcrun.paths import template_folders
from hpcrun.sites import find

if TYPE_CHECKING:
    from hpcrun.resources import Resources
    from hpcrun.sites.find import Found
    from hpcrun.sites.model import Site
    from hpcrun.spec import JobSpec


@dataclass(frozen=True)
class Request:
    """What somebody asked for, and nothing they did not.

    Attributes:
        target: A workload, folder or script; None for any program, given in ``args``.
        args: What followed ``--``.
        resources: Slurm's option names to values, as typed.
        site: A site's name or file; None to detect it.
        environment: Variables for every rank, in order, literal.
        hostfile: Nodes to run on over ssh.
        now: Run now, in the allocation (or on the host) that this process stands in, rather than submit.
        no_gpu: Ranks must not see a GPU.
        output_on_all_ranks: Every rank's output goes to the job's log.
        log_level: Least severe messages that ranks log.
    """

    target: str | None
    args: tuple[str, ...] = ()
    resources: dict[str, Any] = field(default_factory=dict)
    site: str | None = None
    environment: tuple[tuple[str, str], ...] = ()
    hostfile: Path | None = None
    now: bool = False
    no_gpu: bool = False
    output_on_all_ranks: bool = False
    log_level: str = "WARNING"


@dataclass(frozen=True)
class Plan:
    """What would be submitted: the very objects that `submit` takes.

    Attributes:
        spec: The job.
        script: Its rendered script.
        found: The site, and how it was found.
        warnings: What people should know before it runs.
    """

    spec: JobSpec
    script: str
    found: Found
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class _Place:
    """Where the ranks go: what runs the script, how nodes are reached, and what is known of them."""

    scheduler: Any
    reach: Any
    nodes: int | None = None
    ntasks: int | None = None
    gpus_on_node: int | None = None


def prepare(request: Request) -> Plan:
    """Decide everything about a job, and render its script; nothing is written or submitted.

    Raises:
        HpcrunError: Whatever cannot work, before anything happens.
    """
    from hpcrun.script import render
    from hpcrun.spec import JobSpec

    found = find.detect(request.site)
    site = found.site
    program, args = workload.find(request.target, request.args)
    place = _place(request, site)
    resources, warnings = _resources(request, site, program, place)
    if place.scheduler == "slurm":
        site.check(resources)
    launcher = _launcher(site, place, resources)
    python = site.python or sys.executable
    name = resources.job_name or program.name
    spec = JobSpec(
        name=name,
        version=__version__,
        site=site,
        scheduler=place.scheduler,
        launcher=launcher,
        reach=place.reach,
        hostfile=request.hostfile and request.hostfile.expanduser().absolute(),
        resources=resources,
        argv=program.argv(python, args),
        python=python,
        environment=request.environment,
        no_gpu=request.no_gpu or (place.scheduler == "local" and bool(place.gpus_on_node) and not resources.gpus),
        output_on_all_ranks=request.output_on_all_ranks,
        log_level=request.log_level,
        directory=Path.cwd(),
        run_dir=runs.new_directory(_run_root(site), re.sub(r"[^A-Za-z0-9._-]+", "-", name)),
        template_folders=tuple(template_folders()),
    )
    return Plan(spec, render(spec), found, warnings)


def submit(plan: Plan) -> Any:
    """Make the run directory and submit a plan.

    Returns:
        A submitit job whose ``result()`` is the content of ``result.json``.

    Raises:
        HpcrunError: The run directory cannot be made, or the scheduler refuses.
    """
    spec = plan.spec
    if spec.scheduler == "local":
        _check_launcher(spec)
    runs.create(spec, plan.script)
    options = {"keep_allocation": spec.reach == "slurm"} if spec.scheduler == "local" else {}
    return schedulers.executor(spec.scheduler)(spec.run_dir, **options).submit_script()


def _place(request: Request, site: Site) -> _Place:
    if request.hostfile:
        allocation = Allocation.from_hostfile(request.hostfile)
    elif request.now:
        allocation = Allocation.from_environment(os.environ)
    elif site.scheduler == "slurm":
        return _Place("slurm", "slurm")
    else:
        return _Place("local", "host", 1, None, 0 if request.no_gpu else on_this_host())
    gpus = 0 if request.no_gpu else on_this_host()
    if allocation.source == "slurm" and site.scheduler == "slurm":
        return _Place("local", "slurm", len(allocation.hosts), allocation.ntasks, gpus)
    alone = {host.name for host in allocation.hosts} <= {os.uname().nodename, "localhost"}
    return _Place("local", "host" if alone else "ssh", len(allocation.hosts), None, gpus)


def _resources(
    request: Request, site: Site, program: workload.Workload, place: _Place
) -> tuple[Resources, tuple[str, ...]]:
    from pydantic import ValidationError

    from hpcrun.resources import Resources

    try:
        asked = Resources.model_validate(request.resources)
    except ValidationError as error:
        fault = error.errors()[0]
        option = f"--{str(fault['loc'][0]).replace('_', '-')}"
        raise HpcrunError(
            f"{option}={fault['input']}: {fault['msg'].removeprefix('Value error, ')}", hint="see hpcrun submit --help"
        ) from None
    wanted = asked.over(site.defaults).over(program.resources)
    partition = site.partition(wanted.partition)
    wanted = asked.over(partition.defaults).over(site.defaults).over(program.resources)
    known = place.gpus_on_node if place.scheduler == "local" else partition.gpus_per_node
    warnings = []
    if place.scheduler == "local":
        if place.nodes and asked.nodes and asked.nodes > place.nodes:
            raise HpcrunError(
                f"--nodes={asked.nodes} is more than the {place.nodes} here",
                hint="ask for fewer nodes, or name more hosts with --hostfile",
            )
        wanted = _on(place, asked, wanted)
        if wanted.gpus > (known or 0):
            warnings.append(f"{wanted.gpus} GPUs asked for, {known or 0} here: all ranks use the CPU")
            ranks = wanted.ntasks_per_node or (None if wanted.ntasks else wanted.gpus)
            wanted = wanted.model_copy(update={"gpus_per_node": None, "ntasks_per_node": ranks})
            known = 0
    if request.no_gpu:
        ranks = wanted.ntasks_per_node or (None if wanted.ntasks else wanted.gpus or None)
        wanted, known = wanted.model_copy(update={"gpus_per_node": None, "ntasks_per_node": ranks}), 0
    resources, warning = wanted.laid_out(known)
    return resources, (*warnings, *([warning] if warning else []))


def _on(place: _Place, asked: Resources, wanted: Resources) -> Resources:
    """Use all nodes of the place, and its tasks, where the person did not ask for others."""
    update: dict[str, int | None] = {"nodes": asked.nodes or place.nodes}
    if place.ntasks and not (asked.nodes or wanted.ntasks or wanted.ntasks_per_node or wanted.gpus or place.gpus_on_node):
        update["ntasks"] = place.ntasks
    return wanted.model_copy(update=update)


def _launcher(site: Site, place: _Place, resources: Resources) -> Any:
    if place.reach == "slurm":
        return site.launcher
    if resources.ranks == 1 and place.reach == "host":
        return "none"
    return site.launcher if site.launcher in {"mpirun", "mpiexec"} else launchers.over_ssh(site.mpi)


def _check_launcher(spec: JobSpec) -> None:
    name = launchers.command(spec)[:1]
    path = f"{Path(spec.python).parent}:{os.environ.get('PATH', '')}"
    if name and not spec.site.modules.load and not shutil.which(name[0], path=path):
        raise HpcrunError(
            f"{spec.resources.ranks} ranks need {name[0]}, which is not there",
            hint="pip install 'hpcrun[train]' brings an MPI; or set launcher in the site file, or ask for one rank",
        )


def _run_root(site: Site) -> Path:
    text = os.environ.get("HPCRUN_RUN_ROOT") or site.run_root
    root = os.path.expandvars(os.path.expanduser(text))  # noqa: PTH111 - ~ first, then variables
    if "$" in root:
        raise HpcrunError(
            f"run_root = {text!r} names a variable that is not set", hint="set it, or set HPCRUN_RUN_ROOT"
        )
    return Path(root).absolute()
