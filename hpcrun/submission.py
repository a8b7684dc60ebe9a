"""From a request to a run directory, in named steps: site, resources, launcher, code, spec, script."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from hpcrun import (
    containers,
    distribution,
    job_software,
    paths,
    placement,
    plan_checks,
    secrets,
    staging,
    sweep,
    workload,
)
from hpcrun.errors import HpcrunError
from hpcrun.jobs import dependencies, run_arguments, run_creation
from hpcrun.paths import template_folders
from hpcrun.provenance import record as provenance
from hpcrun.scheduler import find_scheduler
from hpcrun.schedulers.environment import expand_slurm_conf
from hpcrun.sites import loader, project, trust
from hpcrun.spec import JobSpec, Task
from hpcrun.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.placement import ExecutionTarget
    from hpcrun.provenance.snapshot import Snapshot
    from hpcrun.request import Request
    from hpcrun.resources import Resources
    from hpcrun.scheduler import Scheduler
    from hpcrun.sites.loader import LoadedSite
    from hpcrun.sites.model import Site
    from hpcrun.sweep import Values
    from hpcrun.workload import Workload


@dataclass(frozen=True)
class Plan:
    """A job before it is submitted: the objects that `create` and the scheduler use.

    Attributes:
        spec: The job.
        script: Its rendered script.
        loaded_site: The site and how it was selected.
        warnings: Messages to show before the job is submitted.
        packages: Python packages that the program imports.
        code: The folder of the user's code.
        snapshot: What to copy of the code; None where the job runs the code itself.
        copied: The snapshot of another run, where the job gets a copy of that one.
        missing_data: The error for data that the program would not find.
    """

    spec: JobSpec
    script: str
    loaded_site: LoadedSite
    warnings: tuple[str, ...]
    packages: tuple[str, ...] = ()
    code: Path = Path()
    snapshot: Snapshot | None = None
    copied: Path | None = None
    missing_data: HpcrunError | None = None


def prepare(request: Request) -> Plan:
    """Plan a job and render its script. Write and submit nothing.

    Raises:
        HpcrunError: The job cannot run.
    """
    return plan(request, loader.load_selected_site(request.site), *workload.find_workload(request.target, request.args))


def plan(
    request: Request,
    loaded_site: LoadedSite,
    program: Workload,
    args: tuple[str, ...],
    *,
    tasks: Sequence[tuple[Values, tuple[str, ...]]] | None = None,
    directory: Path | None = None,
    copied: Path | None = None,
) -> Plan:
    """Plan a job whose site and program are known.

    Args:
        request: The options of the job.
        loaded_site: The site.
        program: The program to run.
        args: Its arguments.
        tasks: Values and arguments of each task of an earlier sweep; None for those that the request describes.
        directory: The working directory of the ranks; None for the current directory.
        copied: The snapshot of another run, which contains the program, to copy again.

    Raises:
        HpcrunError: The job cannot run.
    """
    from hpcrun.script.render import render

    trust.require_trusted(loaded_site)
    project.require_unchanged()
    declared = _expand_slurm_conf(loaded_site.site)
    target = placement.find_target(request, declared)
    resources, warnings = placement.plan_resources(request, declared, program, target)
    resources = _resolve_dependency(resources, declared, target)
    site = declared.resolve(resources)
    launcher = placement.select_launcher(site, target, resources)
    plan_checks.require_site_can_run(loaded_site, site, target, launcher, resources)
    staged = replace(request, **staging.resolve_paths(request, site))
    args = staging.set_data_option(program, args, staging.name_copies(staged))
    tasks = sweep.build_tasks(request.sweep, args, program.option_names) if tasks is None else tasks
    args = run_arguments.resolve_runs(program, args)
    tasks = [(values, run_arguments.resolve_runs(program, words)) for values, words in tasks]
    plan_checks.require_sweep(request, tasks)
    restarts = {"requeue": request.max_requeue, "memory_retries": request.memory_retries}
    plan_checks.require_abilities(target.scheduler, sweep=tasks, dependency=resources.dependency, **restarts)
    name = resources.job_name or program.name
    run_dir = run_creation.new_run_directory(_run_root(site, resources.account), name)
    start = directory or Path.cwd()
    snapshot, snapshot_warnings = _plan_snapshot(request, site, program, run_dir, start=start, copied=copied)
    container = job_software.select_container(request, site)
    interpreter = container.python if container else _python(site)
    vault = secrets.Vault()
    environment = vault.redact_variables(request.environment)
    relocated = snapshot.relocate_program(program) if snapshot else program

    def command(words: tuple[str, ...]) -> tuple[str, ...]:
        return vault.redact_argv(relocated.argv(interpreter, words))

    spec = JobSpec(
        name=name,
        version=__version__,
        site=site,
        scheduler=target.scheduler.name,
        launcher=launcher,
        transport=target.transport,
        hostfile=request.hostfile and Path(paths.expand_user(str(request.hostfile))).absolute(),
        resources=resources,
        argv=() if tasks else command(args),
        python=_python(site),
        container=container,
        environment=environment,
        directory=snapshot.relocate_directory(start) if snapshot else start,
        run_dir=run_dir,
        snapshot=snapshot.source if snapshot else None,
        template_folders=_template_folders(target.scheduler),
        tasks=tuple(Task(vault.redact_variables(values), command(words)) for values, words in tasks),
        trains_alone=resources.ranks > 1 and distribution.trains_alone(_command_words(program, args), start),
        **_job_options(staged, site, target, resources, is_sweep=bool(tasks)),
    )
    spec = replace(spec, secrets=tuple(vault.values))
    if container:
        containers.require_supported(spec, container)
    warnings = (*warnings, *snapshot_warnings, *plan_checks.find_warnings(spec))
    script, code = render(spec), program.code_folder(start)
    missing_data = plan_checks.find_missing_data(program, [words for _, words in tasks] or [args], spec, script)
    return Plan(spec, script, loaded_site, warnings, program.packages, code, snapshot, copied, missing_data)


def find_missing_software(plan: Plan) -> tuple[str, ...]:
    """Return why `create` would refuse a plan on this machine; a dry run only warns of it."""
    try:
        job_software.require_software(plan.spec)
    except HpcrunError as error:
        return (f"{error.message}: without it, no job is submitted here",)
    return (f"{plan.missing_data.message}: without it, no job is submitted here",) if plan.missing_data else ()


def create(plan: Plan) -> Run:
    """Create the run directory of a plan, ready to be submitted.

    Raises:
        HpcrunError: It cannot be created, or software that the job needs is not installed.
    """
    job_software.require_software(plan.spec)
    if plan.missing_data:
        raise plan.missing_data
    plan_checks.require_packages(plan.spec, plan.packages)
    if not find_scheduler(plan.spec.scheduler).has_queue:
        plan_checks.require_launcher(plan.spec)
    files = plan.snapshot.list_files() if plan.snapshot else []
    run = run_creation.create_run(plan.spec, plan.script)
    if plan.snapshot:
        try:
            plan.snapshot.copy_files(files, plan.spec.directory)
        except HpcrunError:
            run_creation.discard_run(run)
            raise
    before = plan.copied.parent if plan.copied else None
    provenance.write_provenance(
        run.directory, plan.loaded_site, plan.code, earlier_run=before, secrets=plan.spec.secrets
    )
    return run


def _expand_slurm_conf(site: Site) -> Site:
    """Expand the variables of ``slurm_conf`` now: later commands query the same Slurm, whatever is set by then."""
    return replace(site, slurm_conf=expand_slurm_conf(site.slurm_conf)) if site.slurm_conf else site


def _resolve_dependency(resources: Resources, site: Site, target: ExecutionTarget) -> Resources:
    """Replace names of runs in ``--dependency`` by job ids."""
    if not target.scheduler.uses_slurm or not resources.dependency:
        return resources
    conf = site.slurm_conf or os.environ.get("SLURM_CONF")
    return replace(resources, dependency=dependencies.resolve_dependency(resources.dependency, conf))


def _plan_snapshot(
    request: Request, site: Site, program: Workload, run_dir: Path, *, start: Path, copied: Path | None
) -> tuple[Snapshot | None, tuple[str, ...]]:
    """Plan a snapshot; warn where the site's cannot be made, and refuse where a requested one cannot."""
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


def _template_folders(scheduler: Scheduler) -> tuple[Path, ...]:
    """Return the folders of templates, highest layer first; a scheduler's own are below those of sites and users."""
    *layers, own = template_folders(project.used_layers())
    return (*layers, *filter(None, [scheduler.templates]), own)


def _python(site: Site) -> str:
    """Return the job's interpreter: only its name if the job activates an environment that contains it."""
    if site.python:
        return _expand(site.python, "python")
    return sys.executable if site.python_key == "python" else "python3"


def _job_options(
    request: Request, site: Site, target: ExecutionTarget, resources: Resources, *, is_sweep: bool
) -> dict[str, Any]:
    """Return the options of the job, with the site's defaults; on a host with GPUs, a job may request none of them."""
    has_idle_gpus = not target.scheduler.has_queue and bool(target.gpus_on_node) and not resources.gpus
    return {
        **request.job_options(),
        "no_gpu": request.no_gpu or has_idle_gpus,
        "cpu_bind": request.cpu_bind or site.cpu_bind,
        "max_requeue": _max_requeue(request, site, target, is_sweep=is_sweep),
        "memory_retries": _memory_retries(request, site, target),
    }


def _max_requeue(request: Request, site: Site, target: ExecutionTarget, *, is_sweep: bool) -> int:
    if "requeue" not in target.scheduler.abilities:
        return 0
    if is_sweep and not site.restart.requeue:  # a task would submit all tasks again
        if request.max_requeue:
            what = f"site {site.name} forbids requeueing (restart.requeue), which tasks of a sweep need to continue"
            raise HpcrunError(what, hint="leave --max-requeue out, or submit the tasks one by one")
        return 0
    return site.restart.max_requeue if request.max_requeue is None else request.max_requeue


def _memory_retries(request: Request, site: Site, target: ExecutionTarget) -> int:
    if "memory_retries" not in target.scheduler.abilities:
        return 0
    return site.restart.memory_retries if request.memory_retries is None else request.memory_retries


def _command_words(program: Workload, args: tuple[str, ...]) -> tuple[str, ...]:
    return (*("python" if part is None else part for part in program.program), *args)


def _expand(text: str, key: str, **more: str) -> str:
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
    return Path(_expand(text, "run_root", **own)).absolute()
