"""From a request to a job, in named steps: site, workload, resources, check, spec, script, run directory."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun import launchers, workload
from hpcrun.errors import HpcrunError
from hpcrun.gpus import in_allocation, on_this_host
from hpcrun.jobs import runs
from hpcrun.paths import template_folders
from hpcrun.resources import FieldError, Resources
from hpcrun.sites import find
from hpcrun.version import __version__

if TYPE_CHECKING:
    from hpcrun.jobs.runs import Run
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
    """What would be submitted: the very objects that are submitted.

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


def create(plan: Plan) -> Run:
    """Make the run directory of a plan, ready to be submitted.

    Raises:
        HpcrunError: It cannot be made, or what starts the ranks is not there.
    """
    if plan.spec.scheduler == "local":
        _check_launcher(plan.spec)
    return runs.create(plan.spec, plan.script)


def _place(request: Request, site: Site) -> _Place:
    if not (request.hostfile or request.now) and site.scheduler == "slurm":
        return _Place("slurm", "slurm")
    if not (request.hostfile or request.now):
        return _Place("local", "host", 1, None, on_this_host())

    from hpcrun.allocation import Allocation

    if request.hostfile:
        allocation = Allocation.from_hostfile(request.hostfile)
    else:
        allocation = Allocation.from_environment(os.environ)
    nodes = len(allocation.hosts)
    if allocation.source == "slurm" and site.scheduler == "slurm":
        return _Place("local", "slurm", nodes, allocation.ntasks, in_allocation(os.environ))
    alone = {host.name for host in allocation.hosts} <= {os.uname().nodename, "localhost"}
    return _Place("local", "host" if alone else "ssh", nodes, None, on_this_host())


def _resources(
    request: Request, site: Site, program: workload.Workload, place: _Place
) -> tuple[Resources, tuple[str, ...]]:
    asked = _asked(request.resources)
    partition = site.partition(asked.over(site.defaults).over(program.resources).partition)
    wanted = asked.over(partition.defaults).over(site.defaults).over(program.resources)
    gpus_on_node = partition.gpus_per_node
    warnings = []
    if place.scheduler == "local":
        wanted, gpus_on_node = _on(place, asked, wanted), place.gpus_on_node or 0
        if wanted.gpus > gpus_on_node and not request.no_gpu:
            warnings.append(f"{wanted.gpus} GPUs asked for, {gpus_on_node} here: all ranks use the CPU")
            wanted, gpus_on_node = _without_gpus(wanted), 0
    if request.no_gpu:
        wanted, gpus_on_node = _without_gpus(wanted), 0
    resources, warning = wanted.laid_out(gpus_on_node)
    return resources, (*warnings, *([warning] if warning else []))


def _asked(options: dict[str, Any]) -> Resources:
    known = [one.name for one in fields(Resources)]
    for name in options:
        if name not in known:
            raise HpcrunError(f"there is no option {name!r}", hint=f"one of {', '.join(known)}")
    try:
        return Resources(**options)
    except FieldError as error:
        option = f"--{error.field.replace('_', '-')}={error.value}"
        raise HpcrunError(f"{option}: {error.reason}", hint="see hpcrun submit --help") from None


def _without_gpus(wanted: Resources) -> Resources:
    """Ask for as many CPU ranks as there would have been GPUs."""
    ranks = wanted.ntasks_per_node or (None if wanted.ntasks else wanted.gpus or None)
    return replace(wanted, gpus_per_node=None, ntasks_per_node=ranks)


def _on(place: _Place, asked: Resources, wanted: Resources) -> Resources:
    """Use all nodes of the place, and its tasks, where the person did not ask for others."""
    if place.nodes and asked.nodes and asked.nodes > place.nodes:
        raise HpcrunError(
            f"--nodes={asked.nodes} is more than the {place.nodes} here",
            hint="ask for fewer nodes, or name more hosts with --hostfile",
        )
    said_ranks = asked.nodes or wanted.ntasks or wanted.ntasks_per_node or wanted.gpus or place.gpus_on_node
    return replace(wanted, nodes=asked.nodes or place.nodes, ntasks=wanted.ntasks if said_ranks else place.ntasks)


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
