"""Warnings about requested resources: GPUs that are not used, and options that have no effect where the job runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.gpus import requests_gpus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.placement import ExecutionTarget
    from hpcrun.request import Request
    from hpcrun.resources import Resources
    from hpcrun.sites.site_model import Site
    from hpcrun.workload import Workload


def warn_of_cpu_training(
    program: Workload, target: ExecutionTarget, resources: Resources, site: Site, gpus_on_node: int | None
) -> Iterator[str]:
    """Warn if a job trains on CPU cores, but the user has not requested this explicitly."""
    if target.scheduler.uses_slurm and requests_gpus((*site.sbatch, *resources.sbatch)):
        return
    rank_text = f"{resources.ntasks_per_node} a node" if resources.ntasks_per_node else str(resources.ranks)
    consequence, advice = f"{program.name} runs on CPU cores (ranks: {rank_text})", "--no-gpu silences this"
    if gpus_on_node is None:
        cause = f"no GPUs were requested, and site {site.name} does not set the number of GPUs per node"
        yield f"{cause}: {consequence}; --gpus-per-node=N requests GPUs, {advice}"
    else:
        partition_or_site = (
            f"partition {resources.partition} of site {site.name}" if resources.partition else f"site {site.name}"
        )
        location = "this host" if target.transport == "host" else partition_or_site
        yield f"{location} has {gpus_on_node or 'no'} GPUs: {consequence}; {advice}"


def warn_of_ignored_options(requested_resources: Resources, target: ExecutionTarget) -> list[str]:
    """Return a warning about options that have no effect without a scheduler."""
    effective_names = {"nodes", "ntasks", "ntasks_per_node", "gpus_per_node", "job_name", "time"}
    effective_names |= {"cpus_per_task"} if target.transport == "slurm" else set()
    ignored_options = [
        f"--{name.replace('_', '-')}" for name in requested_resources.explicit() if name not in effective_names
    ]
    return [f"no scheduler runs this job: {', '.join(ignored_options)} has no effect"] if ignored_options else []


def warn_of_ignored_restarts(request: Request) -> Iterator[str]:
    """Warn of requested restarts, which have no effect without a scheduler."""
    if request.max_requeue:
        yield "no scheduler requeues this job: --max-requeue has no effect"
    if request.memory_retries:
        yield "no scheduler limits the memory of this job: --memory-retries has no effect"


def warn_of_uncounted_gpus(requested_resources: Resources, resources: Resources) -> Iterator[str]:
    """Warn of GPUs in a raw sbatch option, because hpcrun does not start a rank for each of these GPUs."""
    options = [option for option in requested_resources.sbatch if requests_gpus([option])]
    if options and not resources.gpus:
        ranks = f"starts {resources.ranks} {'rank' if resources.ranks == 1 else 'ranks'}"
        problem = f"--sbatch={options[-1]}: hpcrun does not count these GPUs, and {ranks}"
        yield f"{problem}; --gpus-per-node=N starts one rank per GPU"


def warn_of_ignored_memory(requested_resources: Resources, resources: Resources, site: Site) -> Iterator[str]:
    """Warn of memory per GPU for a job without GPUs."""
    if requested_resources.mem_per_gpu and not (resources.gpus or requests_gpus((*site.sbatch, *resources.sbatch))):
        option = f"--mem-per-gpu={requested_resources.mem_per_gpu}"
        yield f"{option} is ignored: the job has no GPUs; --mem sets the memory per node"
