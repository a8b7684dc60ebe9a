"""Checks that refuse a planned job that cannot run, before its run directory is created."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun import launchers, staging, workload_data
from hpcrun.errors import HpcrunError, closest_match
from hpcrun.launchers.rank_variables import data_variable
from hpcrun.nodelist import expand_nodelist
from hpcrun.sites.lint import mpi
from hpcrun.sites.refusals import require_allowed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.placement import Placement
    from hpcrun.request import Request
    from hpcrun.resources import Resources
    from hpcrun.sites.loader import LoadedSite
    from hpcrun.spec import JobSpec
    from hpcrun.spec_builder import Commands

_PACKAGES_OF_EXTRAS = {
    "torch": {"torch", "numpy", "PIL"},
    "jax": {"jax", "keras", "numpy", "PIL"},
    "train-gpu": {"tensorflow", "keras", "mpi4py", "numpy", "sklearn"},
}
"""Packages, by the names that Python imports, that ``pip install 'hpcrun-slurm[EXTRA]'`` brings."""

_IMPORT_NAMES = {
    "scikit-learn": "sklearn", "pillow": "PIL", "opencv-python": "cv2", "pyyaml": "yaml", "pytorch": "torch",
}  # fmt: skip
"""Names that Python imports, by names that pip installs."""


def require_site_can_run(loaded_site: LoadedSite, placement: Placement) -> None:
    """Refuse a job that the site cannot run."""
    site, resources = placement.site, placement.resources
    _require_nodelist("nodelist", resources.nodelist)
    _require_nodelist("exclude", resources.exclude)
    if placement.target.scheduler.has_queue:
        _require_enough_nodes(resources)
        require_allowed(site.declared, resources)
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


def require_capabilities(request: Request, placement: Placement, *, is_sweep: bool) -> None:
    """Refuse options that the scheduler does not support, and --max-parallel for a job that is not a sweep.

    For a scheduler without a queue, this function does not refuse unsupported options.
    """
    if request.max_parallel and not is_sweep:
        message = f"--max-parallel={request.max_parallel} limits the tasks of a sweep, and this job is not a sweep"
        raise HpcrunError(message, hint="hpcrun submit --sweep lr=0.1,0.01 --max-parallel 1 submits a sweep")
    scheduler = placement.target.scheduler
    requested_capabilities = {
        "sweep": is_sweep,
        "dependency": placement.resources.dependency,
        "requeue": request.max_requeue,
        "memory_retries": request.memory_retries,
    }
    missing_capabilities = [
        name for name, value in requested_capabilities.items() if value and name not in scheduler.capabilities
    ]
    if scheduler.has_queue and missing_capabilities:
        option = {"requeue": "max-requeue", "memory_retries": "memory-retries"}.get(
            missing_capabilities[0], missing_capabilities[0]
        )
        nouns = {"sweep": "sweeps", "dependency": "dependencies", "requeue": "requeueing", "memory_retries": "retries"}
        *others, last = [noun for name, noun in nouns.items() if name not in scheduler.capabilities]
        missing_nouns = f"{', '.join(others)} or {last}" if others else last
        raise HpcrunError(
            f"--{option}: the scheduler {scheduler.name} has no {missing_nouns}", hint=f"leave out --{option}"
        )


def require_packages(spec: JobSpec, packages: Sequence[str]) -> None:
    """Refuse a job whose program needs packages that are missing, if the job uses this Python environment."""
    missing_packages = [name for name in packages if find_spec(name.partition(".")[0]) is None]
    uses_this_python = spec.python == sys.executable and not spec.container
    if missing_packages and uses_this_python and not spec.site.modules.load:
        names = ", ".join(missing_packages)
        raise HpcrunError(
            f"{spec.name} needs {names} (packages in workload.toml), which this Python environment does not have",
            hint=_advise_on_packages(packages, missing_packages),
        )


def _advise_on_packages(packages: Sequence[str], missing_packages: Sequence[str]) -> str:
    """Return the hint about missing packages: a correct name, or the command that installs them."""
    known_names = list(set().union(*_PACKAGES_OF_EXTRAS.values()))
    for name in missing_packages:
        if name in known_names or name.startswith(tuple(known_names)):  # torchvision is no misspelled torch
            continue
        if import_name := _IMPORT_NAMES.get(name.lower()) or closest_match(name, known_names):
            return f"packages has the names that Python imports: did you mean {import_name}?"
    extra = next((name for name in ("torch", "jax") if name in packages), "train-gpu")
    others = [name for name in missing_packages if name not in _PACKAGES_OF_EXTRAS[extra]]
    extras = [f"'hpcrun-slurm[{extra}]'"] if len(others) < len(missing_packages) else []
    without_gpus = " (without GPUs: [train-cpu])" if extras and extra == "train-gpu" else ""
    return f"pip install {' '.join([*extras, *others])}{without_gpus}, or set python in the site file"


def require_launcher(spec: JobSpec) -> None:
    """Refuse a job whose launcher is not installed on this host."""
    launcher_command = launchers.build_launch_command(spec)[:1]
    path = f"{Path(spec.python).parent}:{os.environ.get('PATH', '')}"
    changes_path = spec.site.modules.load or spec.site.activation_keys  # in both cases, the job has a different PATH
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
    if spec.container or program.data is None or spec.resources.dependency:  # an earlier job may create the data
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
