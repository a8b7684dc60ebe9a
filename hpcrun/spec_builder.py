"""Creation of the specification of a job from its request, placement and commands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun import containers, distribution, frameworks, job_software, node_launch, paths, secrets
from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen
from hpcrun.job_paths import find_interpreter
from hpcrun.paths import template_folders
from hpcrun.script_names import read_script
from hpcrun.sites import project
from hpcrun.spec import JobSpec, Task
from hpcrun.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.placement import Placement
    from hpcrun.provenance.snapshot import Snapshot
    from hpcrun.request import Request
    from hpcrun.scheduler import Scheduler
    from hpcrun.sweep import Values
    from hpcrun.workload import Workload


@frozen
class Commands:
    """The program of a job, and its arguments.

    Attributes:
        program: The program.
        args: The arguments of the program.
        tasks: The values and arguments of each task of a sweep; empty if the job is not a sweep.
        start: The directory in which the job was submitted.
    """

    program: Workload
    args: tuple[str, ...]
    tasks: Sequence[tuple[Values, tuple[str, ...]]]
    start: Path


def build_spec(
    request: Request, placement: Placement, commands: Commands, run_dir: Path, snapshot: Snapshot | None
) -> JobSpec:
    """Return the specification of a job, with placeholders for secrets in its command line and variables.

    Args:
        request: The options of the job, with absolute paths.
        placement: The nodes and resources of the job.
        commands: The program of the job, and its arguments.
        run_dir: The path of the run directory.
        snapshot: The copy of the code that the job runs; None if the job runs the original code.

    Raises:
        HpcrunError: The container or the arguments are invalid, or the site forbids requeueing the tasks of a sweep.
    """
    container = job_software.select_container(request, placement.site)
    python = find_interpreter(placement.site)
    program = snapshot.relocate_program(commands.program) if snapshot else commands.program
    secret_vault = secrets.Vault()
    environment = secret_vault.redact_variables(request.environment)

    resources = placement.resources
    # a process per node is a rank of the program; other values of --launch start as many ranks as are requested
    processes = node_launch.launched_resources(resources, request.launch) if request.launch == "nodes" else resources

    def argv(args: tuple[str, ...]) -> tuple[str, ...]:
        program.require_ranks(args, processes.ranks, request.virtual_workers or 1)
        return secret_vault.redact_argv(program.argv(container.python if container else python, args))

    spec = JobSpec(
        name=placement.resources.job_name or program.name,
        version=__version__,
        site=placement.site,
        scheduler=placement.target.scheduler.name,
        launcher=placement.launcher,
        transport=placement.target.transport,
        hostfile=request.hostfile and Path(paths.expand_user(str(request.hostfile))).absolute(),
        resources=placement.resources,
        argv=() if commands.tasks else argv(commands.args),
        python=python,
        container=container,
        environment=environment,
        directory=snapshot.relocate_directory(commands.start) if snapshot else commands.start,
        run_dir=run_dir,
        snapshot=snapshot.source if snapshot else None,
        template_folders=_template_folders(placement.target.scheduler),
        tasks=tuple(Task(secret_vault.redact_variables(values), argv(args)) for values, args in commands.tasks),
        **_job_options(request, placement, commands),
    )
    if container:
        containers.require_supported(spec, container)
    node_launch.require_matching_script(spec)
    is_unknown = placement.resources.ranks > 1 and spec.framework == "auto"
    trains_separate_models = is_unknown and distribution.trains_separate_models(
        _command_words(commands), commands.start
    )
    return replace(spec, trains_separate_models=trains_separate_models, secrets=tuple(secret_vault.values))


def _template_folders(scheduler: Scheduler) -> tuple[Path, ...]:
    """Return the folders of templates, highest layer first, including the scheduler's folder."""
    *layers, own = template_folders(project.used_layers())
    return (*layers, *filter(None, [scheduler.templates]), own)


def _job_options(request: Request, placement: Placement, commands: Commands) -> dict[str, Any]:
    """Return the options of the job, with the site's defaults."""
    target, framework = placement.target, request.framework
    words, start = _command_words(commands), commands.start
    if placement.resources.ranks > 1 or read_script(words, start).joins_world:
        framework = distribution.find_framework(words, start, framework)
    has_idle_gpus = not target.scheduler.has_queue and bool(target.gpus_on_node) and not placement.resources.gpus
    default_view = frameworks.default_gpu_view(framework, words, start)
    return {
        **request.job_options(),
        "no_gpu": request.no_gpu or has_idle_gpus,
        "framework": framework,
        "gpus_visible": request.gpus_visible or placement.site.gpu.visible or default_view,
        "strict": request.strict or placement.site.strict,
        "cpu_bind": request.cpu_bind or placement.site.cpu_bind,
        "max_requeue": _max_requeue(request, placement, is_sweep=bool(commands.tasks)),
        "memory_retries": _memory_retries(request, placement),
    }


def _max_requeue(request: Request, placement: Placement, *, is_sweep: bool) -> int:
    if "requeue" not in placement.target.scheduler.capabilities:
        return 0
    if (
        is_sweep and not placement.site.restart.requeue
    ):  # resubmitting the script of one task would submit all tasks again
        if request.max_requeue:
            message = (
                f"site {placement.site.name} forbids requeueing (restart.requeue), "
                "which tasks of a sweep need to continue"
            )
            raise HpcrunError(message, hint="leave --max-requeue out, or submit the tasks one by one")
        return 0
    return placement.site.restart.max_requeue if request.max_requeue is None else request.max_requeue


def _memory_retries(request: Request, placement: Placement) -> int:
    if "memory_retries" not in placement.target.scheduler.capabilities:
        return 0
    return placement.site.restart.memory_retries if request.memory_retries is None else request.memory_retries


def _command_words(commands: Commands) -> tuple[str, ...]:
    return (*("python" if part is None else part for part in commands.program.program), *commands.args)
