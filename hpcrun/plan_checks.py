"""Checks a planned job before its run directory exists: refuses the job, or returns warnings."""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import distribution, job_program, job_software, launchers, staging, workload_data
from hpcrun.errors import HpcrunError, closest_match, pluralize
from hpcrun.job_options import STAGED_PLACEHOLDER
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

WARNED_RANKS_PER_CORE, MAX_RANKS_PER_CORE = 8, 100
"""Ranks per core of this host, without a scheduler, above which hpcrun warns of a job, and above which it refuses a
job."""

SHORT_LIMIT_SECONDS = 600
"""Time limit in seconds below which a requeued job spends much of its time on starting."""


def require_site_can_run(loaded_site: LoadedSite, placement: Placement) -> None:
    """Refuse a job that the site cannot run."""
    site, resources = placement.site, placement.resources
    _require_nodelist("nodelist", resources.nodelist)
    _require_nodelist("exclude", resources.exclude)
    if placement.target.scheduler.has_queue:
        _require_enough_nodes(resources)
        site.declared.check(resources)
    if site.setup or site.teardown:
        from hpcrun.sites.lint import bash

        bash.require_parsable(loaded_site, site)
    mpi.require_matching_launcher(loaded_site, site, placement.launcher, resources)


def _require_nodelist(option: str, nodes: str | None) -> None:
    """Refuse a node list that sbatch cannot parse, unless it is the name of a file."""
    try:
        if nodes and "/" not in nodes:
            expand_nodelist(nodes)
    except HpcrunError as error:
        raise HpcrunError(f"--{option}: {error.message}", hint=error.hint) from None


def _require_enough_nodes(resources: Resources) -> None:
    """Refuse a --nodelist with more nodes than the job has; a shorter list is valid."""
    nodelist = resources.nodelist or ""
    if not nodelist or "/" in nodelist:
        return
    if Path(nodelist).is_file():
        raise HpcrunError(
            f"--nodelist={nodelist} is a file", hint=f"sbatch needs a slash in the file name: --nodelist=./{nodelist}"
        )
    node_count = len(expand_nodelist(nodelist))
    if resources.nodes and node_count > resources.nodes:
        message = f"--nodelist={nodelist} has {node_count} nodes, and the job has {resources.nodes}"
        raise HpcrunError(message, hint=f"give --nodes={node_count}, or name fewer")


def require_abilities(request: Request, placement: Placement, *, is_sweep: bool) -> None:
    """Refuse options that the scheduler does not support, and --max-parallel for a job that is not a sweep.

    For a scheduler without a queue, this function does not refuse unsupported options.
    """
    if request.max_parallel and not is_sweep:
        message = f"--max-parallel={request.max_parallel} limits the tasks of a sweep, and this job is not a sweep"
        raise HpcrunError(message, hint="hpcrun submit --sweep lr=0.1,0.01 --max-parallel 1 submits a sweep")
    scheduler = placement.target.scheduler
    requested_abilities = {
        "sweep": is_sweep,
        "dependency": placement.resources.dependency,
        "requeue": request.max_requeue,
        "memory_retries": request.memory_retries,
    }
    missing_abilities = [
        name for name, value in requested_abilities.items() if value and name not in scheduler.abilities
    ]
    if scheduler.has_queue and missing_abilities:
        option = {"requeue": "max-requeue", "memory_retries": "memory-retries"}.get(
            missing_abilities[0], missing_abilities[0]
        )
        nouns = {"sweep": "sweeps", "dependency": "dependencies", "requeue": "requeueing", "memory_retries": "retries"}
        *others, last = [noun for name, noun in nouns.items() if name not in scheduler.abilities]
        missing_nouns = f"{', '.join(others)} or {last}" if others else last
        raise HpcrunError(
            f"--{option}: the scheduler {scheduler.name} has no {missing_nouns}", hint=f"leave out --{option}"
        )


def require_packages(spec: JobSpec, packages: Sequence[str]) -> None:
    """Refuse a job whose program needs packages that are missing, if the job uses this Python environment."""
    missing_packages = [name for name in packages if find_spec(name) is None]
    uses_this_python = spec.python == sys.executable and not spec.container
    if missing_packages and uses_this_python and not spec.site.modules.load:
        keras_extra = "'hpcrun-slurm[train-gpu]' (without GPUs: [train-cpu])"
        extra_packages = next((f"'hpcrun-slurm[{name}]'" for name in ("torch", "jax") if name in packages), keras_extra)
        raise HpcrunError(
            f"{spec.name} imports {', '.join(missing_packages)}, which this Python environment does not have",
            hint=f"pip install {extra_packages}, or set python in the site file",
        )


def require_launcher(spec: JobSpec) -> None:
    """Refuse a job whose launcher is not installed on this host."""
    launcher_command = launchers.build_launch_command(spec)[:1]
    path = f"{Path(spec.python).parent}:{os.environ.get('PATH', '')}"
    changes_path = spec.site.modules.load or spec.site.activation_keys  # in both cases, the job has another PATH
    if launcher_command and not changes_path and not shutil.which(launcher_command[0], path=path):
        raise HpcrunError(
            f"{spec.resources.ranks} ranks need {launcher_command[0]}, which is not installed",
            hint="pip install mpich brings an MPI; or set launcher in the site file, or request one rank",
        )


def find_missing_data(commands: Commands, spec: JobSpec, script: str) -> HpcrunError | None:
    """Return the error about missing data of the job; None in a container, or if all data exist."""
    program, shared_path = commands.program, None if spec.transport == "host" else spec.run_dir
    if staging_error := staging.find_missing_paths(spec, shared_path):
        return staging_error
    if spec.container or program.data is None or spec.resources.dependency:  # an earlier job may make them
        return None
    data_variables = {data_variable(name): folder for name, folder in spec.site.data.items()}
    site_variables = {**spec.site.mpi.environment, **spec.site.environment}
    environment = {**os.environ, **data_variables, **site_variables, **dict(spec.environment)}
    are_variables_known = not spec.site.modules.load and program.data.variable not in script
    for words in [args for _, args in commands.tasks] or [commands.args]:
        if error := workload_data.find_missing_data(
            program,
            words,
            environment,
            spec.directory,
            shared_path=shared_path,
            are_variables_known=are_variables_known,
        ):
            return error
    return None


def find_warnings(spec: JobSpec) -> tuple[str, ...]:
    """Return all warnings to print before a job is submitted."""
    return (
        *_warn_of_short_time_limit(spec),
        *_warn_of_too_many_ranks(spec),
        *_warn_of_ranks_that_train_alone(spec),
        *_warn_of_fit_under_strategies(spec),
        *_warn_of_missing_gpus(spec),
        *_warn_of_ignored_option(spec),
        *_warn_of_unexpanded_variables(spec),
        *_warn_of_unused_codec(spec),
        *_warn_of_unknown_copies(spec),
        *job_program.find_warnings(spec),
        *job_software.container_warnings(spec),
        *_warn_of_unused_templates(spec),
        *missing_layers(),
        *project.project_warnings(),
    )


def _warn_of_short_time_limit(spec: JobSpec) -> tuple[str, ...]:
    """Return a warning if the time limit leaves a requeued job little time for work."""
    limit = parse_time(spec.resources.time) if spec.max_requeue and spec.resources.time else inf
    if limit >= SHORT_LIMIT_SECONDS:
        return ()
    run_seconds = limit - min(spec.site.restart.signal_seconds, limit / 4)
    return (f"of --time={spec.resources.time}, each start has {run_seconds:.0f} s, and TensorFlow's own takes some",)


def _warn_of_too_many_ranks(spec: JobSpec) -> tuple[str, ...]:
    """Warn of many more ranks than cores on this host, or refuse them."""
    cores, ranks = len(os.sched_getaffinity(0)), spec.resources.ranks
    if spec.transport != "host" or ranks <= WARNED_RANKS_PER_CORE * cores:
        return ()
    warning = f"{pluralize(ranks, 'rank')} would share the {pluralize(cores, 'core')} of this host"
    hint = f"give --ntasks={cores}; --site=NAME submits to a cluster, hpcrun run --hostfile=FILE runs on more hosts"
    if ranks > MAX_RANKS_PER_CORE * cores:
        raise HpcrunError(warning, hint=hint)
    return (f"{warning}\nHINT: {hint}",)


def _warn_of_ranks_that_train_alone(spec: JobSpec) -> tuple[str, ...]:
    """Return a warning if each rank would train a separate model; with --strict, raise an error."""
    if not spec.trains_alone:
        return ()
    warning = (
        f"each of the {spec.resources.ranks} ranks would train alone: the script names neither hpcrun.train nor "
        "another library that connects ranks"
    )
    hint = "model = hpcrun.train.Model(model) shares the work between them (docs/training.md); or request one rank"
    if spec.strict:
        raise HpcrunError(f"--strict: {warning}", hint=hint)
    return (f"{warning}\nHINT: {hint}",)


def _warn_of_fit_under_strategies(spec: JobSpec) -> tuple[str, ...]:
    """Warn of a script that needs Keras 2, unless the job uses Keras 2."""
    names = {*dict(spec.environment), *spec.site.environment, *os.environ}
    if "TF_USE_LEGACY_KERAS" in names or spec.framework != "tensorflow":
        return ()
    if not distribution.fits_under_strategy(spec.argv, spec.directory):
        return ()
    warning = "the script calls fit under a strategy for several workers, which fails with Keras 3"
    alternatives = (
        "-x TF_USE_LEGACY_KERAS=1 and pip install tf_keras; or model = hpcrun.train.Model(model), or a custom loop"
    )
    return (f"{warning}\nHINT: {alternatives} (docs/strategies.md)",)


def _warn_of_missing_gpus(spec: JobSpec) -> tuple[str, ...]:
    """Warn if scripts that select a GPU by the local rank run on more ranks per node than the node has GPUs."""
    ranks, gpus = spec.resources.ntasks_per_node or 1, spec.resources.gpus
    if spec.framework not in {"torch", "horovod"} or spec.gpus_visible != "node" or not 0 < gpus < ranks:
        return ()
    warning = f"{ranks} ranks per node have {pluralize(gpus, 'GPU')}: each rank of {spec.framework} needs its own GPU"
    return (f"{warning}\nHINT: --ntasks-per-node={gpus} starts one rank per GPU; --no-gpu runs the ranks on the CPU",)


def _warn_of_ignored_option(spec: JobSpec) -> tuple[str, ...]:
    """Warn of an option in a comment of the script, where hpcrun does not read it."""
    if not (option := distribution.find_ignored_option(spec.argv, spec.directory)):
        return ()
    warning = f"# hpcrun: {option} in the script is ignored: hpcrun reads only framework=NAME there"
    name_and_value = "=".join(re.split(r"[ =:]+", option.lstrip("-"), maxsplit=1))
    return (f"{warning}\nHINT: give it on the command line: --{name_and_value}",)


def _warn_of_unused_templates(spec: JobSpec) -> tuple[str, ...]:
    """Return a warning about each template that no template includes, and that replaces no template of hpcrun."""
    if len(spec.template_folders) < 2:
        return ()
    *layers, shipped_files = ([*folder.glob("*.j2")] for folder in spec.template_folders)
    known_names = sorted({f"{spec.scheduler}.sh.j2", *(file.name for file in shipped_files)})
    own_files = [file for files in layers for file in files]
    texts_by_file = {file: file.read_text(encoding="utf-8", errors="replace") for file in own_files}
    unused_files = [
        file
        for file in own_files
        if file.name not in known_names
        and not any(file.name in text for other, text in texts_by_file.items() if other != file)
    ]
    return tuple(
        f"no job script uses {file}; "
        + (
            f"did you mean {like}?"
            if (like := closest_match(file.name, known_names))
            else f"a template is one of {', '.join(known_names)}"
        )
        for file in unused_files
    )


def _warn_of_unexpanded_variables(spec: JobSpec) -> tuple[str, ...]:
    """Return a warning about variables of -x whose values contain variables, or refuse a PATH that does.

    Raises:
        HpcrunError: PATH would have no folder of the system, so that no job script works.
    """
    literals = {name: value for name, value in spec.environment if re.fullmatch(r"\S*\$(?:\{?[A-Za-z_]|\()\S*", value)}
    if not literals:
        return ()
    name = "PATH" if "PATH" in literals else next(iter(literals))
    problem = f"-x {name}={literals[name]}: the text is exported as it is; no shell replaces its variables"
    hint = f'in double quotes, your shell replaces them here: -x "{name}={literals[name]}"'
    if name.endswith("PATH"):
        hint += f"; prepend_path.{name} in the site file adds folders in the job"
    if name == "PATH":
        raise HpcrunError(problem, hint=hint)
    return (f"{problem}\nHINT: {hint}",)


def _warn_of_unused_codec(spec: JobSpec) -> tuple[str, ...]:
    """Return a warning about --compress for ranks that another library than hpcrun.train connects."""
    if spec.compress in (None, "none") or spec.framework in ("auto", "hpcrun"):
        return ()
    return (f"--compress={spec.compress} has no effect: only hpcrun.train reads it, not {spec.framework}",)


def _warn_of_unknown_copies(spec: JobSpec) -> tuple[str, ...]:
    """Return a warning about arguments that refer to node-local copies of data which the job does not create."""
    argv = [*spec.argv, *(word for task in spec.tasks for word in task.argv)]
    unknown_copies = staging.find_unknown_copies(spec, argv)
    if not unknown_copies:
        return ()
    copy_names = ", ".join(f"{STAGED_PLACEHOLDER}/{name}" for name in spec.staged.values())
    copies_text = f"the copies are {copy_names}" if copy_names else "the job makes no copies (--stage-in, --unpack)"
    return (f"the program's arguments contain {', '.join(unknown_copies)}, but {copies_text}",)
