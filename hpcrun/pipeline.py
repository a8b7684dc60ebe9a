"""From a request to a job, in named steps: site, workload, resources, check, spec, script, run directory."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun import launchers, placement, workload
from hpcrun.errors import HpcrunError
from hpcrun.jobs import runs
from hpcrun.paths import template_folders
from hpcrun.sites import find
from hpcrun.version import __version__

if TYPE_CHECKING:
    from hpcrun.jobs.runs import Run
    from hpcrun.placement import Place
    from hpcrun.request import Request
    from hpcrun.resources import Resources
    from hpcrun.sites.find import Found
    from hpcrun.sites.model import Site
    from hpcrun.spec import JobSpec


@dataclass(frozen=True)
class Plan:
    """What would be submitted: the very objects that are submitted.

    Attributes:
        spec: The job.
        script: Its rendered script.
        found: The site, and how it was found.
        warnings: What people should know before it runs.
        packages: Python packages that the program imports.
    """

    spec: JobSpec
    script: str
    found: Found
    warnings: tuple[str, ...]
    packages: tuple[str, ...] = ()


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
    place = placement.find(request, site)
    resources, warnings = placement.resources(request, site, program, place)
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
        fusion_threshold_kb=request.fusion_threshold_kb,
        directory=Path.cwd(),
        run_dir=runs.new_directory(_run_root(site), re.sub(r"[^A-Za-z0-9._-]+", "-", name)),
        template_folders=tuple(template_folders()),
    )
    return Plan(spec, render(spec), found, warnings, program.packages)


def create(plan: Plan) -> Run:
    """Make the run directory of a plan, ready to be submitted.

    Raises:
        HpcrunError: It cannot be made, or what the job needs is not installed.
    """
    _check_packages(plan)
    if plan.spec.scheduler == "local":
        _check_launcher(plan.spec)
    return runs.create(plan.spec, plan.script)


def _launcher(site: Site, place: Place, resources: Resources) -> Any:
    if place.reach == "slurm":
        if site.launcher == "none" and resources.ranks > 1:
            hint = 'ask for one rank, or set launcher = "srun" in the site file'
            raise HpcrunError(f"{resources.ranks} ranks, but site {site.name} has launcher = none", hint=hint)
        return site.launcher
    if resources.ranks == 1 and place.reach == "host":
        return "none"
    return site.launcher if site.launcher in {"mpirun", "mpiexec"} else launchers.over_ssh(site.mpi)


def _check_packages(plan: Plan) -> None:
    """Look for the program's packages where that tells something: in the environment that the job shares with us."""
    missing = [name for name in plan.packages if find_spec(name) is None]
    if missing and plan.spec.python == sys.executable and not plan.spec.site.modules.load:
        raise HpcrunError(
            f"{plan.spec.name} imports {', '.join(missing)}, which this Python environment does not have",
            hint="pip install 'hpcrun[train]' (or train-gpu), or set python in the site file to the jobs' interpreter",
        )


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
