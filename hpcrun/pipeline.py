"""From a request to a job, in named steps: site, workload, resources, check, spec, script, run directory."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass, replace
from importlib.util import find_spec
from math import inf
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, cast

from hpcrun import containers, distribution, job_software, launchers, paths, placement, secrets, sweep, workload
from hpcrun.errors import HpcrunError
from hpcrun.jobs import dependencies, runs
from hpcrun.paths import missing_layers, template_folders
from hpcrun.provenance import record as provenance
from hpcrun.resources import seconds
from hpcrun.schedulers.environment import expanded
from hpcrun.sites import loader, project, trust
from hpcrun.sites.lint import mpi
from hpcrun.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.placement import Place
    from hpcrun.provenance.snapshot import Snapshot
    from hpcrun.request import Request
    from hpcrun.resources import Resources
    from hpcrun.sites.loader import LoadedSite
    from hpcrun.sites.model import Site
    from hpcrun.spec import JobSpec
    from hpcrun.sweep import Values
    from hpcrun.workload import Workload


SHORT_SECONDS = 600
"""Of a shorter time limit, the starts of a job that is requeued again and again take a good part."""


@dataclass(frozen=True)
class Plan:
    """What would be submitted: the very objects that are submitted.

    Attributes:
        spec: The job.
        script: Its rendered script.
        found: The site, and how it was found.
        warnings: What people should know before it runs.
        packages: Python packages that the program imports.
        code: The folder of the user's code.
        snapshot: What of it is copied for the job; None where the job runs the code itself.
        copied: Another run's snapshot, where that is what is copied.
    """

    spec: JobSpec
    script: str
    found: LoadedSite
    warnings: tuple[str, ...]
    packages: tuple[str, ...] = ()
    code: Path = Path()
    snapshot: Snapshot | None = None
    copied: Path | None = None


def prepare(request: Request) -> Plan:
    """Decide everything about a job, and render its script; nothing is written or submitted.

    Raises:
        HpcrunError: Whatever cannot work, before anything happens.
    """
    return plan(request, loader.load_selected_site(request.site), *workload.find(request.target, request.args))


def plan(
    request: Request,
    found: LoadedSite,
    program: Workload,
    args: tuple[str, ...],
    *,
    tasks: Sequence[tuple[Values, tuple[str, ...]]] | None = None,
    directory: Path | None = None,
    copied: Path | None = None,
) -> Plan:
    """Decide everything about a job whose site and program are known.

    Args:
        request: What else was asked for.
        found: The site.
        program: What to run.
        args: Its arguments.
        tasks: Of an old sweep, each task's values and arguments; None for the tasks that the request asks for.
        directory: Where ranks start; the current directory where not given.
        copied: Another run's snapshot of the code, which the program is a part of, to be copied again.

    Raises:
        HpcrunError: Whatever cannot work, before anything happens.
    """
    from hpcrun.script import render
    from hpcrun.spec import JobSpec, Task

    trust.require_trusted(found)
    project.require_unchanged()
    site = found.site
    if site.slurm_conf:  # the run will be asked for there, whatever is set by then
        site = replace(site, slurm_conf=expanded(site.slurm_conf))
    place = placement.find(request, site)
    resources, warnings = placement.resources(request, site, program, place)
    if place.scheduler == "slurm":
        if resources.dependency:
            conf = site.slurm_conf or os.environ.get("SLURM_CONF")
            resources = replace(resources, dependency=dependencies.resolved(resources.dependency, conf))
        site.check(resources)
    here = site.at(resources.partition, resources.qos)
    if here.setup or here.teardown:
        from hpcrun.sites.lint import bash

        bash.require_parsable(found, here)
    launcher = _launcher(here, place, resources)
    mpi.require_matching_launcher(found, here, launcher, resources.ranks)
    python, container = _python(here), job_software.select_container(request, here)
    inside = container.python if container else python
    name = resources.job_name or program.name
    run_dir = runs.new_directory(_run_root(site, resources.account), re.sub(r"[^A-Za-z0-9._-]+", "-", name))
    start = directory or Path.cwd()
    code = program.code(start)
    alone = resources.ranks > 1 and distribution.trains_alone(_words(program, args), start)
    snapshot, warning = _snapshot(request, site, program, run_dir, start=start, copied=copied)
    program = snapshot.relocate_program(program) if snapshot else program
    swept = sweep.tasks(request.sweep, args, program.spellings) if tasks is None else tasks
    if request.max_parallel and not swept:
        what = f"--max-parallel={request.max_parallel}: there is no sweep whose tasks it could limit"
        raise HpcrunError(what, hint="hpcrun submit --sweep lr=0.1,0.01 --max-parallel 1 makes one")
    vault = secrets.Vault()
    environment = vault.redact_variables(request.environment)
    spec = JobSpec(
        name=name,
        version=__version__,
        site=site,
        scheduler=place.scheduler,
        launcher=launcher,
        reach=place.reach,
        hostfile=request.hostfile and Path(paths.expand_user(str(request.hostfile))).absolute(),
        resources=resources,
        argv=() if swept else vault.redact_argv(program.argv(inside, args)),
        python=python,
        container=container,
        environment=environment,
        no_gpu=request.no_gpu or (place.scheduler == "local" and bool(place.gpus_on_node) and not resources.gpus),
        output_on_all_ranks=request.output_on_all_ranks,
        log_level=request.log_level,
        cpu_bind=cast("Any", request.cpu_bind or here.cpu_bind),
        fusion_threshold_kb=request.fusion_threshold_kb,
        max_requeue=_max_requeue(request, site, place, swept=bool(swept)),
        directory=snapshot.relocate_directory(start) if snapshot else start,
        run_dir=run_dir,
        snapshot=snapshot.source if snapshot else None,
        template_folders=tuple(template_folders(project.used_layers())),
        tasks=tuple(
            Task(vault.redact_variables(values), vault.redact_argv(program.argv(inside, own))) for values, own in swept
        ),
        max_parallel=request.max_parallel,
        trains_alone=alone,
    )
    spec = replace(spec, secrets=tuple(vault.values))
    if container:
        containers.require_supported(spec, container)
    warning = (
        *warning,
        *_short(spec),
        *_alone(spec),
        *job_software.container_warnings(spec),
        *missing_layers(),
        *project.project_warnings(),
    )
    return Plan(spec, render(spec), found, (*warnings, *warning), program.packages, code, snapshot, copied)


def doubts(plan: Plan) -> tuple[str, ...]:
    """Return why `create` would refuse a plan for what is not on this machine; a dry run goes on without it."""
    try:
        job_software.require_software(plan.spec)
    except HpcrunError as refusal:
        return (f"{refusal.message}: without it, no job is submitted here",)
    return ()


def create(plan: Plan) -> Run:
    """Make the run directory of a plan, ready to be submitted.

    Raises:
        HpcrunError: It cannot be made, or what the job needs is not installed.
    """
    job_software.require_software(plan.spec)
    _check_packages(plan)
    if plan.spec.scheduler == "local":
        _check_launcher(plan.spec)
    files = plan.snapshot.list_files() if plan.snapshot else []
    run = runs.create(plan.spec, plan.script)
    if plan.snapshot:
        try:
            plan.snapshot.copy_files(files, plan.spec.directory)
        except HpcrunError:
            runs.discard(run)
            raise
    before = plan.copied.parent if plan.copied else None
    provenance.write_provenance(run.directory, plan.found, plan.code, before=before)
    return run


def _snapshot(
    request: Request, site: Site, program: Workload, run_dir: Path, *, start: Path, copied: Path | None
) -> tuple[Snapshot | None, tuple[str, ...]]:
    """Decide on a snapshot; what a site wants and cannot be is told, and what somebody asked for is refused."""
    if not (copied or (site.snapshot if request.snapshot is None else request.snapshot)):
        return None, ()
    from hpcrun.provenance.snapshot import Snapshot, plan_snapshot

    if copied:
        return Snapshot(copied, run_dir / "code", "folder", (), run_dir.parent), ()
    try:
        return plan_snapshot(program, run_dir, start), ()
    except HpcrunError as error:
        if request.snapshot:
            raise
        return None, (f"no snapshot (site key snapshot): {error.message.removeprefix('--snapshot: ')}",)


def _launcher(site: Site, place: Place, resources: Resources) -> str:
    if place.reach == "slurm":
        if site.launcher_name == "none" and resources.ranks > 1:
            hint = 'ask for one rank, or set launcher = "srun" in the site file'
            raise HpcrunError(f"{resources.ranks} ranks, but site {site.name} has launcher = none", hint=hint)
        return site.launcher_name
    if resources.ranks == 1 and place.reach == "host":
        return "none"
    if not site.custom_launcher and launchers.named(site.launcher_name).starts_over_ssh:
        return site.launcher_name
    return launchers.over_ssh(site.mpi)


def _python(site: Site) -> str:
    """Return the interpreter of the jobs; where one is in an environment that they activate, by its name alone."""
    if site.python:
        return _expanded(site.python, "python")
    return sys.executable if site.python_key == "python" else "python3"


def _max_requeue(request: Request, site: Site, place: Place, *, swept: bool) -> int:
    if place.scheduler != "slurm":
        return 0
    if swept and not site.restart.requeue:  # a task would submit all tasks again
        if request.max_requeue:
            what = (
                f"site {site.name} forbids requeueing (restart.requeue), and tasks of a sweep cannot go on without it"
            )
            raise HpcrunError(what, hint="leave --max-requeue out, or submit the tasks one by one")
        return 0
    return site.restart.max_requeue if request.max_requeue is None else request.max_requeue


def _short(spec: JobSpec) -> tuple[str, ...]:
    """Warn of a time limit that leaves a job that is to go on hardly any time in between."""
    limit = seconds(spec.resources.time) if spec.max_requeue and spec.resources.time else inf
    if limit >= SHORT_SECONDS:
        return ()
    early = min(spec.site.restart.signal_seconds, limit / 4)
    return (f"of --time={spec.resources.time}, each start has {limit - early:.0f} s, and TensorFlow's own takes some",)


def _words(program: Workload, args: tuple[str, ...]) -> tuple[str, ...]:
    return (*("python" if part is None else part for part in program.program), *args)


def _alone(spec: JobSpec) -> tuple[str, ...]:
    if not spec.trains_alone:
        return ()
    says = (
        f"each of the {spec.resources.ranks} ranks would train alone: the script names neither hpcrun.train nor "
        "anything else through which they meet\n"
        "HINT: model = hpcrun.train.Model(model) shares the work between them (docs/training.md); or ask for one rank"
    )
    return (says,)


def _check_packages(plan: Plan) -> None:
    """Look for the program's packages where that tells something: in the environment that the job shares with us."""
    missing = [name for name in plan.packages if find_spec(name) is None]
    shared = plan.spec.python == sys.executable and not plan.spec.container
    if missing and shared and not plan.spec.here.modules.load:
        raise HpcrunError(
            f"{plan.spec.name} imports {', '.join(missing)}, which this Python environment does not have",
            hint="pip install 'hpcrun-slurm[train-gpu]' (without GPUs: [train-cpu]), or set python in the site file",
        )


def _check_launcher(spec: JobSpec) -> None:
    name = launchers.command(spec)[:1]
    path = f"{Path(spec.python).parent}:{os.environ.get('PATH', '')}"
    brought = spec.here.modules.load or spec.here.activation_keys  # then the job has another PATH
    if name and not brought and not shutil.which(name[0], path=path):
        raise HpcrunError(
            f"{spec.resources.ranks} ranks need {name[0]}, which is not there",
            hint="pip install mpich brings an MPI; or set launcher in the site file, or ask for one rank",
        )


def _expanded(text: str, key: str, **more: str) -> str:
    """Expand ``~`` and variables, of this process and more, in a path that is needed before the job runs."""
    path = Template(paths.expand_user(text)).safe_substitute({"USER": paths.user_name(), **os.environ, **more})
    if "$" in path:
        hint = "give --account=NAME" if "SLURM_JOB_ACCOUNT" in path else "set it, or change the site file"
        if key == "run_root":
            hint += "; for a dry run on another machine, HPCRUN_RUN_ROOT=/tmp/runs names a folder in its place"
        raise HpcrunError(f"{key} = {text!r} names a variable that is not set", hint=hint)
    return path


def _run_root(site: Site, account: str | None) -> Path:
    text = os.environ.get("HPCRUN_RUN_ROOT") or site.run_root
    own = {"SLURM_JOB_ACCOUNT": account.lower()} if account else {}  # as in the job: Slurm has small letters
    return Path(_expanded(text, "run_root", **own)).absolute()
