"""Planning of a job from a request (site, resources, launcher, code, script), and creation of its run directory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import job_program, job_software, placement, plan_checks, plan_warnings, staging, sweep, workload
from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen
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
    from hpcrun.sites.site_model import Site
    from hpcrun.spec import JobSpec
    from hpcrun.sweep import Values
    from hpcrun.workload import Workload


@frozen
class Plan:
    """A planned job, from which `create` makes the run directory.

    Attributes:
        spec: The specification of the job.
        script: The rendered job script.
        loaded_site: The site and how it was selected.
        warnings: Messages to show before the job is submitted.
        packages: Python packages that the program imports.
        code: The folder of the user's code.
        snapshot: The copy of the code to make; None if the job runs the original code.
        copied: The snapshot of an earlier run to copy again; None to make a new snapshot.
        missing_data: The error about data that the program would not find; None if no data are missing.
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
    """Plan a job and render its script. Nothing is written or submitted.

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
    copied_snapshot: Path | None = None,
) -> Plan:
    """Plan a job whose site and program are known.

    Args:
        request: The options of the job.
        loaded_site: The site.
        program: The program to run.
        args: The arguments of the program.
        tasks: Values and arguments of the tasks of an earlier sweep; None to take the sweep from the request.
        directory: The working directory of the ranks; None for the current directory.
        copied_snapshot: The snapshot of another run, which contains the program, to copy again.

    Raises:
        HpcrunError: The job cannot run.
    """
    from hpcrun.script.render import render

    trust.require_trusted(loaded_site)
    project.require_unchanged()
    request = replace(request, **request.job_options_with_defaults(program.job_options))
    job_placement = placement.resolve_placement(request, _expand_slurm_conf(loaded_site.site), program)
    plan_checks.require_site_can_run(loaded_site, job_placement)
    request = replace(request, **staging.resolve_paths(request, job_placement.site))
    commands = _build_commands(request, program, args, tasks, directory or Path.cwd())
    plan_checks.require_capabilities(request, job_placement, is_sweep=bool(commands.tasks))
    run_root = find_run_root(job_placement.site, job_placement.resources.account)
    run_dir = run_creation.new_run_directory(run_root, job_placement.resources.job_name or program.name)
    snapshot, snapshot_warnings = _plan_snapshot(request, job_placement.site, commands, run_dir, copied_snapshot)
    spec = build_spec(request, job_placement, commands, run_dir, snapshot)
    spec.require_codec()
    spec.require_compatible_variables(dict(spec.environment))
    job_program.require_one_word(spec)
    job_program.require_one_launcher(spec)
    script = render(spec)
    return Plan(
        spec,
        script,
        loaded_site,
        warnings=(*job_placement.warnings, *snapshot_warnings, *plan_warnings.find_warnings(spec)),
        packages=program.packages,
        code=program.code_folder(commands.start),
        snapshot=snapshot,
        copied=copied_snapshot,
        missing_data=plan_checks.find_missing_data(commands, spec, script),
    )


def find_missing_software(plan: Plan) -> tuple[str, ...]:
    """Return warnings for a dry run about missing software or data, for which `create` would refuse the plan."""
    refusal = plan.missing_data
    try:
        job_software.require_software(plan.spec)
    except HpcrunError as error:
        refusal = error
    if refusal is None:
        return ()
    return (f"{refusal.message}: without it, no job is submitted here\nHINT: {refusal.hint}",)


def create(plan: Plan) -> Run:
    """Create the run directory of a planned job.

    Raises:
        HpcrunError: The run directory cannot be created, or software or data that the job needs are missing.
    """
    from concurrent.futures import ThreadPoolExecutor

    job_software.require_software(plan.spec)
    if plan.missing_data:
        raise plan.missing_data
    plan_checks.require_packages(plan.spec, plan.packages)
    if not find_scheduler(plan.spec.scheduler).has_queue:
        plan_checks.require_launcher(plan.spec)
    files = plan.snapshot.list_files() if plan.snapshot else []
    with ThreadPoolExecutor(1) as pool:
        code_state = pool.submit(provenance.read_code_state, plan.code)  # git runs while the files are written
        run = run_creation.create_run(plan.spec, plan.script)
    if plan.snapshot:
        try:
            plan.snapshot.copy_files(files, plan.spec.directory)
        except HpcrunError:
            run_creation.discard_run(run)
            raise
    earlier_run = plan.copied.parent if plan.copied else None
    provenance.write_provenance(
        run.directory, plan.loaded_site, code_state.result(), earlier_run=earlier_run, secrets=plan.spec.secrets
    )
    return run


def _expand_slurm_conf(site: Site) -> Site:
    """Expand variables in ``slurm_conf``, so that later commands query the same Slurm cluster in any environment."""
    return replace(site, slurm_conf=expand_slurm_conf(site.slurm_conf)) if site.slurm_conf else site


def _build_commands(
    request: Request,
    program: Workload,
    args: tuple[str, ...],
    tasks: Sequence[tuple[Values, tuple[str, ...]]] | None,
    start: Path,
) -> Commands:
    """Return the commands of a job; arguments that name staged data or earlier jobs are replaced by paths."""
    args = staging.set_data_option(program, args, staging.name_copies(request))
    tasks = sweep.build_tasks(request.sweep, args, program.option_names) if tasks is None else tasks
    resolved_tasks = [(values, run_arguments.resolve_runs(program, words)) for values, words in tasks]
    return Commands(program, run_arguments.resolve_runs(program, args), resolved_tasks, start)


def _plan_snapshot(
    request: Request, site: Site, commands: Commands, run_dir: Path, snapshot_to_copy: Path | None
) -> tuple[Snapshot | None, tuple[str, ...]]:
    """Plan a snapshot of the code; if that is impossible, warn, or raise an error if the user requests the snapshot."""
    if not (snapshot_to_copy or (site.snapshot if request.snapshot is None else request.snapshot)):
        return None, ()
    from hpcrun.provenance.snapshot import Snapshot, plan_snapshot

    if snapshot_to_copy:
        return Snapshot(snapshot_to_copy, run_dir / "code", "folder", (), run_dir.parent), ()
    try:
        return plan_snapshot(commands.program, run_dir, commands.start), ()
    except HpcrunError as error:
        if request.snapshot:
            raise
        return None, (f"no snapshot (site key snapshot): {error.message.removeprefix('--snapshot: ')}",)
