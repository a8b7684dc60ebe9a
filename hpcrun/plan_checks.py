"""What a job is refused for, or warned of, before its run directory exists."""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import job_software, launchers, staging, workload_data
from hpcrun.errors import HpcrunError, closest_match
from hpcrun.job_options import STAGED
from hpcrun.launchers.variables import data_variable
from hpcrun.nodelist import expand_nodelist
from hpcrun.paths import missing_layers
from hpcrun.resources import parse_time
from hpcrun.sites import project
from hpcrun.sites.lint import mpi

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.placement import Placement
    from hpcrun.request import Request
    from hpcrun.resources import Resources
    from hpcrun.sites.loader import LoadedSite
    from hpcrun.spec import JobSpec
    from hpcrun.spec_builder import Commands

SHORT_SECONDS = 600
"""With a shorter time limit, a requeued job spends much of its time starting."""


def require_site_can_run(loaded_site: LoadedSite, place: Placement) -> None:
    """Refuse what the site cannot run."""
    site, resources = place.site, place.resources
    _require_nodelist("nodelist", resources.nodelist)
    _require_nodelist("exclude", resources.exclude)
    if place.target.scheduler.has_queue:
        _require_enough_nodes(resources)
        site.declared.check(resources)
    if site.setup or site.teardown:
        from hpcrun.sites.lint import bash

        bash.require_parsable(loaded_site, site)
    mpi.require_matching_launcher(loaded_site, site, place.launcher, resources)


def _require_nodelist(option: str, nodes: str | None) -> None:
    """Refuse nodes that sbatch would not read, unless they are in a file."""
    try:
        if nodes and "/" not in nodes:
            expand_nodelist(nodes)
    except HpcrunError as error:
        raise HpcrunError(f"--{option}: {error.message}", hint=error.hint) from None


def _require_enough_nodes(resources: Resources) -> None:
    """Refuse more named nodes than the job has; Slurm adds nodes to fewer."""
    named = resources.nodelist or ""
    if not named or "/" in named:
        return
    if Path(named).is_file():
        raise HpcrunError(
            f"--nodelist={named} is a file", hint=f"sbatch wants a slash in its name: --nodelist=./{named}"
        )
    count = len(expand_nodelist(named))
    if resources.nodes and count > resources.nodes:
        what = f"--nodelist={named} has {count} nodes, and the job has {resources.nodes}"
        raise HpcrunError(what, hint=f"give --nodes={count}, or name fewer")


def require_abilities(request: Request, place: Placement, *, is_sweep: bool) -> None:
    """Refuse what the scheduler of a queue cannot do, and a limit of parallel tasks where there are none.

    Jobs without a queue only get a warning.
    """
    if request.max_parallel and not is_sweep:
        what = f"--max-parallel={request.max_parallel} limits the tasks of a sweep, and this job is no sweep"
        raise HpcrunError(what, hint="hpcrun submit --sweep lr=0.1,0.01 --max-parallel 1 makes one")
    scheduler = place.target.scheduler
    requested = {
        "sweep": is_sweep,
        "dependency": place.resources.dependency,
        "requeue": request.max_requeue,
        "memory_retries": request.memory_retries,
    }
    lacking = [name for name, value in requested.items() if value and name not in scheduler.abilities]
    if scheduler.has_queue and lacking:
        option = {"requeue": "max-requeue", "memory_retries": "memory-retries"}.get(lacking[0], lacking[0])
        nouns = {"sweep": "sweeps", "dependency": "dependencies", "requeue": "requeueing", "memory_retries": "retries"}
        *others, last = [noun for name, noun in nouns.items() if name not in scheduler.abilities]
        absent = f"{', '.join(others)} or {last}" if others else last
        raise HpcrunError(f"--{option}: the scheduler {scheduler.name} has no {absent}", hint=f"leave out --{option}")


def require_packages(spec: JobSpec, packages: Sequence[str]) -> None:
    """Require the program's packages, if the job uses this Python environment."""
    missing = [name for name in packages if find_spec(name) is None]
    shared = spec.python == sys.executable and not spec.container
    if missing and shared and not spec.site.modules.load:
        raise HpcrunError(
            f"{spec.name} imports {', '.join(missing)}, which this Python environment does not have",
            hint="pip install 'hpcrun-slurm[train-gpu]' (without GPUs: [train-cpu]), or set python in the site file",
        )


def require_launcher(spec: JobSpec) -> None:
    """Require the launcher's command on this host."""
    name = launchers.build_launch_command(spec)[:1]
    path = f"{Path(spec.python).parent}:{os.environ.get('PATH', '')}"
    brought = spec.site.modules.load or spec.site.activation_keys  # then the job has another PATH
    if name and not brought and not shutil.which(name[0], path=path):
        raise HpcrunError(
            f"{spec.resources.ranks} ranks need {name[0]}, which is not there",
            hint="pip install mpich brings an MPI; or set launcher in the site file, or ask for one rank",
        )


def find_missing_data(commands: Commands, spec: JobSpec, script: str) -> HpcrunError | None:
    """Return the error for data that one of the commands would not find; a container has files of its own."""
    program, shared = commands.program, None if spec.transport == "host" else spec.run_dir
    if missing := staging.find_missing(spec, shared):
        return missing
    if spec.container or program.data is None:
        return None
    data = {data_variable(name): folder for name, folder in spec.site.data.items()}
    site_variables = {**spec.site.mpi.environment, **spec.site.environment}
    environment = {**os.environ, **data, **site_variables, **dict(spec.environment)}
    knows_variables = not spec.site.modules.load and program.data.variable not in script
    for words in [args for _, args in commands.tasks] or [commands.args]:
        if error := workload_data.find_missing(
            program, words, environment, spec.directory, shared=shared, knows_variables=knows_variables
        ):
            return error
    return None


def find_warnings(spec: JobSpec) -> tuple[str, ...]:
    """Return the warnings to print before a job is submitted."""
    return (
        *_warn_of_short_time_limit(spec),
        *_warn_of_ranks_that_train_alone(spec),
        *_warn_of_unknown_copies(spec),
        *_warn_of_values_that_look_like_ranges(spec),
        *job_software.container_warnings(spec),
        *_warn_of_unused_templates(spec),
        *missing_layers(),
        *project.project_warnings(),
    )


def _warn_of_short_time_limit(spec: JobSpec) -> tuple[str, ...]:
    """Warn of a time limit that leaves a requeued job little time for work."""
    limit = parse_time(spec.resources.time) if spec.max_requeue and spec.resources.time else inf
    if limit >= SHORT_SECONDS:
        return ()
    early = min(spec.site.restart.signal_seconds, limit / 4)
    return (f"of --time={spec.resources.time}, each start has {limit - early:.0f} s, and TensorFlow's own takes some",)


def _warn_of_ranks_that_train_alone(spec: JobSpec) -> tuple[str, ...]:
    """Warn of ranks that share no work, or refuse them with --strict."""
    if not spec.trains_alone:
        return ()
    warning = (
        f"each of the {spec.resources.ranks} ranks would train alone: the script names neither hpcrun.train nor "
        "anything else through which they meet"
    )
    hint = "model = hpcrun.train.Model(model) shares the work between them (docs/training.md); or ask for one rank"
    if spec.strict:
        raise HpcrunError(f"--strict: {warning}", hint=hint)
    return (f"{warning}\nHINT: {hint}",)


def _warn_of_unused_templates(spec: JobSpec) -> tuple[str, ...]:
    """Warn of templates of a site or user that neither have the name of one of hpcrun's nor are named by another."""
    if len(spec.template_folders) < 2:
        return ()
    *layers, shipped = ([*folder.glob("*.j2")] for folder in spec.template_folders)
    known = sorted({f"{spec.scheduler}.sh.j2", *(file.name for file in shipped)})
    own = [file for files in layers for file in files]
    texts = {file: file.read_text(encoding="utf-8", errors="replace") for file in own}
    unused = [
        file
        for file in own
        if file.name not in known and not any(file.name in text for other, text in texts.items() if other != file)
    ]
    return tuple(
        f"no job script uses {file}; "
        + (
            f"did you mean {like}?"
            if (like := closest_match(file.name, known))
            else f"a template is one of {', '.join(known)}"
        )
        for file in unused
    )


def _warn_of_unknown_copies(spec: JobSpec) -> tuple[str, ...]:
    """Warn of arguments with the copies of another job, as after ``resubmit --stage-in``, or with misspelled ones."""
    argv = [*spec.argv, *(word for task in spec.tasks for word in task.argv)]
    unknown = staging.find_unknown_copies(spec, argv)
    if not unknown:
        return ()
    copies = ", ".join(f"{STAGED}/{name}" for name in spec.staged.values())
    existing = f"the copies are {copies}" if copies else "there are none without --stage-in or --unpack"
    return (f"the program's arguments contain {', '.join(unknown)}, but {existing}",)


def _warn_of_values_that_look_like_ranges(spec: JobSpec) -> tuple[str, ...]:
    """Warn of an axis of a sweep with one value such as ``1-5``."""
    axes: dict[str, set[str]] = {}
    for name, value in (pair for task in spec.tasks for pair in task.values):
        axes.setdefault(name, set()).add(value)
    single = [(name, min(values)) for name, values in axes.items() if len(values) == 1]
    warnings = []
    for name, value in single:
        if re.fullmatch(r"\d+([-:]\d+){1,2}", value):
            advice = f"a range is {name}={'..'.join(re.split('[-:]', value))}"
        elif re.fullmatch(r"\d*\.\d+([-:]\d*\.\d+){1,2}", value):
            advice = f"list several: {name}={','.join(re.split('[-:]', value))}"
        else:
            continue
        warnings.append(f"--sweep {name}={value} is one value; {advice}")
    return tuple(warnings)
