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


LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


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

    def __post_init__(self) -> None:
        for name, _ in self.environment:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise HpcrunError(f"{name!r} is no name of a variable", hint="letters, digits and _ make a name")
            if name.startswith("HPCRUN_") and not name.startswith("HPCRUN_DATA_"):
                raise HpcrunError(f"{name} is hpcrun's own variable", hint="choose another name")
        if self.log_level not in LOG_LEVELS:
            raise HpcrunError(f"{self.log_level!r} is no log level", hint=f"one of {', '.join(LOG_LEVELS)}")


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
    python = _expanded(site.python, "python") if site.python else sys.executable
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
    slots = allocation.ntasks if allocation.ntasks > nodes else None  # else the file has one line a host, and no counts
    names = {host.name for host in allocation.hosts}
    if names <= {os.uname().nodename, "localhost"}:
        return _Place("local", "host", nodes, slots, on_this_host())
    # the hosts' GPUs are the site's to know; without it, this host stands for the others if it is one of them
    gpus = site.partition(request.resources.get("partition")).gpus_per_node
    if gpus is None and os.uname().nodename in names:
        gpus = on_this_host()
    return _Place("local", "ssh", nodes, slots, gpus)


def _resources(
    request: Request, site: Site, program: workload.Workload, place: _Place
) -> tuple[Resources, tuple[str, ...]]:
    asked = _asked(request.resources)
    partition = site.partition(asked.over(site.defaults).over(program.resources).partition)
    wanted = asked.over(partition.defaults).over(site.defaults).over(program.resources)
    gpus_on_node = partition.gpus_per_node
    warnings = []
    if place.scheduler == "local":
        wanted, gpus_on_node = _on(place, asked, wanted), place.gpus_on_node
        warnings += _without_effect(asked, place)
        if gpus_on_node is not None and wanted.gpus > gpus_on_node and not request.no_gpu:
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


def _without_effect(asked: Resources, place: _Place) -> list[str]:
    """Warn of options that only a scheduler could heed."""
    heeded = {"nodes", "ntasks", "ntasks_per_node", "gpus_per_node", "job_name", "time"}
    heeded |= {"cpus_per_task"} if place.reach == "slurm" else set()
    ignored = [f"--{name.replace('_', '-')}" for name in asked.said() if name not in heeded]
    return [f"no scheduler places these ranks: {', '.join(ignored)} has no effect"] if ignored else []


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


def _expanded(text: str, key: str) -> str:
    """Expand ``~`` and variables of this process in a path that is needed before the job runs."""
    path = os.path.expandvars(os.path.expanduser(text))  # noqa: PTH111 - ~ first, then variables
    if "$" in path:
        raise HpcrunError(f"{key} = {text!r} names a variable that is not set", hint="set it, or change the site file")
    return path


def _run_root(site: Site) -> Path:
    return Path(_expanded(os.environ.get("HPCRUN_RUN_ROOT") or site.run_root, "run_root")).absolute()
