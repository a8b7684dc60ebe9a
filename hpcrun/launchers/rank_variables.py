"""Names and values of environment variables that hpcrun sets for ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun import launchers, node_launch

if TYPE_CHECKING:
    from hpcrun.spec import JobSpec


def list_rank_variables(spec: JobSpec) -> list[str]:
    """Return the names of the environment variables that ranks on other nodes need, in order, without duplicates."""
    names = ["PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONUNBUFFERED", "XLA_FLAGS", "TF_CPP_MIN_LOG_LEVEL"]
    names += [*spec.site.prepend_path, *spec.site.mpi.environment, *spec.site.environment]
    names += [name for name, _ in spec.environment]
    names += [*map(data_variable, spec.site.data), "HPCRUN_RUN_DIR", "HPCRUN_JOB_ID"]
    names += [name for name, _ in job_variables(spec)]
    return list(dict.fromkeys(names))


def job_variables(spec: JobSpec) -> list[tuple[str, str]]:
    """Return the HPCRUN_* variables about the job that its ranks need, as (name, value)."""
    site, resources = spec.site, spec.resources
    variables = {
        "HPCRUN_NTASKS": str(resources.ranks),
        "HPCRUN_SITE_NAME": site.name,
        "HPCRUN_LAUNCHER": spec.launcher,
        **({"HPCRUN_MPI_TYPE": site.mpi.type or ""} if launchers.find_launcher(spec).uses_slurm else {}),
        "HPCRUN_GPUS_PER_NODE": str(resources.gpus),
        **spec.rank_variables(),
        **node_launch.launch_variables(spec),
    }
    return list(variables.items())


def data_variable(name: str) -> str:
    """Return the name of the environment variable with the folder of a data set of the site."""
    return f"HPCRUN_DATA_{name.upper().replace('-', '_')}"
