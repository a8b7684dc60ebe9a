"""From a request to a run directory, in named steps: site, resources, launcher, code, spec, script."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import job_software, placement, plan_checks, staging, sweep, workload
from hpcrun.errors import HpcrunError
from hpcrun.job_paths import find_run_root
from hpcrun.jobs import run_arguments, run_creation
from hpcrun.provenance import record as provenance
from hpcrun.scheduler import find_scheduler
from hpcrun.schedulers.environment import expand_slurm_conf
from hpcrun.sites import loader, project, trust
from hpcrun.spec_builder import Commands, build_spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.provenance.snapshot import Snapshot
    from hpcrun.request import Request
    from hpcrun.sites.loader import LoadedSite
    from hpcrun.sites.model import Site
    from hpcrun.spec import JobSpec
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
    place = placement.place(request, _expand_slurm_conf(loaded_site.site), program)
    plan_checks.require_site_can_run(loaded_site, place)
    request = replace(request, **staging.resolve_paths(request, place.site))
    commands = _build_commands(request, program, args, tasks, directory or Path.cwd())
    plan_checks.require_abilities(request, place, is_sweep=bool(commands.tasks))
    run_root = find_run_root(place.site, place.resources.account)
    run_dir = run_creation.new_run_directory(run_root, place.resources.job_name or program.name)
    snapshot, snapshot_warnings = _plan_snapshot(request, place.site, commands, run_dir, copied)
    spec = build_spec(request, place, commands, run_dir, snapshot)
    script = render(spec)
    return Plan(
        spec,
        script,
        loaded_site,
        warnings=(*place.warnings, *snapshot_warnings, *plan_checks.find_warnings(spec)),
        packages=program.packages,
        code=program.code_folder(commands.start),
        snapshot=snapshot,
        copied=copied,
        missing_data=plan_checks.find_missing_data(commands, spec, script),
    )


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


def _build_commands(
    request: Request,
    program: Workload,
    args: tuple[str, ...],
    tasks: Sequence[tuple[Values, tuple[str, ...]]] | None,
    start: Path,
) -> Commands:
    """Return the commands of a job: with copied data, with the tasks of its sweep, and with paths in place of jobs."""
    args = staging.set_data_option(program, args, staging.name_copies(request))
    tasks = sweep.build_tasks(request.sweep, args, program.option_names) if tasks is None else tasks
    resolved = [(values, run_arguments.resolve_runs(program, words)) for values, words in tasks]
    return Commands(program, run_arguments.resolve_runs(program, args), resolved, start)


def _plan_snapshot(
    request: Request, site: Site, commands: Commands, run_dir: Path, copied: Path | None
) -> tuple[Snapshot | None, tuple[str, ...]]:
    """Plan a snapshot; warn where the site's cannot be made, and refuse where a requested one cannot."""
    if not (copied or (site.snapshot if request.snapshot is None else request.snapshot)):
        return None, ()
    from hpcrun.provenance.snapshot import Snapshot, plan_snapshot

    if copied:
        return Snapshot(copied, run_dir / "code", "folder", (), run_dir.parent), ()
    try:
        return plan_snapshot(commands.program, run_dir, commands.start), ()
    except HpcrunError as error:
        if request.snapshot:
            raise
        return None, (f"no snapshot (site key snapshot): {error.message.removeprefix('--snapshot: ')}",)
