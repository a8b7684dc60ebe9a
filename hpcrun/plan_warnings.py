"""Warnings about a planned job, which are printed before it is submitted."""

from __future__ import annotations

import os
import re
import shutil
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import job_program, job_software, script_warnings, staging
from hpcrun.errors import HpcrunError, closest_match, pluralize
from hpcrun.job_options import STAGED_PLACEHOLDER
from hpcrun.paths import missing_layers, shipped_folder
from hpcrun.resources import parse_time
from hpcrun.script_names import read_script
from hpcrun.sites import project

if TYPE_CHECKING:
    from hpcrun.spec import JobSpec

WARNED_RANKS_PER_CORE, MAX_RANKS_PER_CORE = 8, 100
"""Numbers of ranks per core of this host above which hpcrun, without a scheduler, warns of a job or refuses it."""

SHORT_LIMIT_SECONDS = 600
"""Time limit in seconds below which a requeued job spends much of its time on starting."""


_KERAS_CODE = "model = hpcrun.train.Model(model) shares the work between them (docs/training.md)"

_CONNECTING_CODE = {
    "torch": "torch.distributed.init_process_group() and DistributedDataParallel share the work (docs/frameworks.md)",
    "jax": "jax.distributed.initialize() connects the ranks (docs/frameworks.md)",
}
"""Code that lets ranks share the work, by training library, if it is not Keras."""


def find_warnings(spec: JobSpec) -> tuple[str, ...]:
    """Return all warnings to print before a job is submitted."""
    return (
        *_warn_of_short_time_limit(spec),
        *_warn_of_too_many_ranks(spec),
        *_warn_of_separate_models(spec),
        *_warn_of_fit_under_strategies(spec),
        *script_warnings.find_warnings(spec),
        *_warn_of_missing_gpus(spec),
        *_warn_of_ignored_option(spec),
        *_warn_of_unexpanded_variables(spec),
        *_warn_of_path_without_system(spec),
        *_warn_of_unused_codec(spec),
        *_warn_of_unknown_copies(spec),
        *job_program.find_warnings(spec),
        *job_software.container_warnings(spec),
        *_warn_of_folder_with_bundled_name(spec),
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
    return (
        f"of --time={spec.resources.time}, each start has {run_seconds:.0f} s, and Python and its libraries take some",
    )


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


def _warn_of_separate_models(spec: JobSpec) -> tuple[str, ...]:
    """Return a warning if each rank would train a separate model; with --strict, raise an error."""
    if not spec.trains_separate_models:
        return ()
    warning = (
        f"each of the {spec.resources.ranks} ranks would train a separate model: the script names neither "
        "hpcrun.train nor another library that connects ranks"
    )
    script = read_script(spec.argv, spec.directory)
    hint = f"{_CONNECTING_CODE.get(script.training_library, _KERAS_CODE)}; or request one rank"
    if class_name := script.class_with_all_gpus:
        hint = f"--nodes=1 --ntasks-per-node=1 gives one process all GPUs of a node, which {class_name} uses"
    if spec.strict:
        raise HpcrunError(f"--strict: {warning}", hint=hint)
    return (f"{warning}\nHINT: {hint}",)


def _warn_of_fit_under_strategies(spec: JobSpec) -> tuple[str, ...]:
    """Warn of a script that needs Keras 2, unless the job uses Keras 2."""
    names = {*dict(spec.environment), *spec.site.environment, *os.environ}
    if "TF_USE_LEGACY_KERAS" in names or spec.framework != "tensorflow":
        return ()
    if not read_script(spec.argv, spec.directory).calls_fit_under_strategy:
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
    """Warn of an option that hpcrun ignores because it is in a comment of the script."""
    if not (option := read_script(spec.argv, spec.directory).ignored_option):
        return ()
    warning = f"# hpcrun: {option} in the script is ignored: hpcrun reads only framework=NAME there"
    name_and_value = "=".join(re.split(r"[ =:]+", option.lstrip("-"), maxsplit=1))
    return (f"{warning}\nHINT: give it on the command line: --{name_and_value}",)


def _warn_of_folder_with_bundled_name(spec: JobSpec) -> tuple[str, ...]:
    """Return a warning if the directory has a workload folder with the name of the bundled workload that runs."""
    argv = spec.tasks[0].argv if spec.tasks else spec.argv
    folder = Path(argv[1]).parent if len(argv) > 1 else spec.directory
    if folder.parent != shipped_folder("workloads") or not (spec.directory / folder.name / "workload.toml").is_file():
        return ()
    name = folder.name
    return (f"{name} is the bundled workload, not the folder ./{name}\nHINT: for the folder: hpcrun submit ./{name}",)


def _warn_of_unused_templates(spec: JobSpec) -> tuple[str, ...]:
    """Return a warning about each template that no template includes, and that does not replace one of hpcrun's."""
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
    """Return a warning about a -x variable whose value contains variables; if it is PATH, raise an error.

    Raises:
        HpcrunError: PATH would lack the system's folders, and the job script would fail.
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


def _warn_of_path_without_system(spec: JobSpec) -> tuple[str, ...]:
    """Return a warning if a -x variable sets PATH to folders without the programs of the system."""
    path = dict(spec.environment).get("PATH")
    if path is None or shutil.which("rm", path=path) or {"/usr/bin", "/bin"} & {*path.split(":")}:
        return ()
    warning = f"-x PATH={path} lacks the folders of the system (/usr/bin, /bin): the job script adds them at the end"
    return (f'{warning}\nHINT: keep the folders that PATH has: -x "PATH={path}:$PATH"',)


def _warn_of_unused_codec(spec: JobSpec) -> tuple[str, ...]:
    """Return warnings about --compress and --virtual-workers for ranks that do not use hpcrun.train."""
    options = {"--compress": spec.compress, "--virtual-workers": spec.virtual_workers}
    if spec.framework in ("auto", "hpcrun"):
        return ()
    given = [f"{flag}={value}" for flag, value in options.items() if value not in (None, "none", 1)]
    return tuple(f"{option} has no effect: only hpcrun.train reads it, not {spec.framework}" for option in given)


def _warn_of_unknown_copies(spec: JobSpec) -> tuple[str, ...]:
    """Return a warning about arguments that refer to node-local copies of data which the job does not create."""
    argv = [*spec.argv, *(word for task in spec.tasks for word in task.argv)]
    unknown_copies = staging.find_unknown_copies(spec, argv)
    if not unknown_copies:
        return ()
    copy_names = ", ".join(f"{STAGED_PLACEHOLDER}/{name}" for name in spec.staged.values())
    copies_text = f"the copies are {copy_names}" if copy_names else "the job makes no copies (--stage-in, --unpack)"
    return (f"the program's arguments contain {', '.join(unknown_copies)}, but {copies_text}",)
