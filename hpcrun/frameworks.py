"""The variables and visible GPUs of a job's ranks, by the framework through which the ranks find each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.node_launch import STARTERS
from hpcrun.script_names import read_script

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.spec import JobSpec

_VARIABLES = {
    "tensorflow": "TF_CONFIG",
    "torch": "MASTER_ADDR, MASTER_PORT, RANK and others",
    "jax": "JAX_COORDINATOR_ADDRESS and others",
    "horovod": "those of the launcher",
    "none": "none",
}

_SELECT_GPU_BY_LOCAL_RANK = {"torch", "horovod"}
_MAY_SELECT_GPU_BY_LOCAL_RANK = {"auto", "jax", "tensorflow"}
"""Frameworks whose scripts select a GPU by the local rank: always, or if they read a variable with the local rank.

Processes of JAX and TensorFlow use all GPUs that they see, unless their script also selects one.
"""


def describe_framework(spec: JobSpec) -> str:
    """Return a line about the framework, and how its ranks find each other; empty for one rank and if it is unknown."""
    variables = _VARIABLES.get(spec.framework)
    if spec.resources.ranks == 1 or spec.launch in STARTERS:
        return ""
    if not variables:
        name = "hpcrun" if spec.framework == "hpcrun" else read_script(spec.argv, spec.directory).mpi_library
        return f"framework  {name}; the ranks find each other by MPI (--framework overrides it)" if name else ""
    gpus = "; each sees all GPUs of its node" if spec.has_gpus and spec.gpus_visible == "node" else ""
    return f"framework  {spec.framework}; variables of each rank: {variables}{gpus} (--framework overrides it)"


def describe_gpus(spec: JobSpec) -> str:
    """Return a line about the GPUs that each rank sees, if a variable in the script decides it; else empty."""
    if spec.resources.ranks == 1 or spec.framework != "auto" or not spec.has_gpus or spec.gpus_visible != "node":
        return ""
    name = read_script(spec.argv, spec.directory).local_rank_variable
    reason = f"the script reads {name}"
    return f"GPUs       each rank sees all GPUs of its node: {reason} (--gpus-visible overrides it)" if name else ""


def default_gpu_view(framework: str, words: tuple[str, ...], start: Path) -> str:
    """Return the default of --gpus-visible: ``node`` if the script selects a GPU by the local rank.

    Args:
        framework: The framework of the ranks.
        words: The command line of one rank.
        start: The directory in which it is started.
    """
    if framework in _SELECT_GPU_BY_LOCAL_RANK:
        return "node"
    script = read_script(words, start)
    selects_gpu = framework == "auto" or script.selects_gpu
    reads_local_rank = framework in _MAY_SELECT_GPU_BY_LOCAL_RANK and script.local_rank_variable
    return "node" if reads_local_rank and selects_gpu else "rank"


def launch_option(spec: JobSpec) -> str | None:
    """Return the value of `hpcrun_launch`'s option --framework, or None.

    Without the option, a job with a single rank gets no framework variables.
    """
    # torchrun and Accelerate set the variables themselves
    framework = "none" if spec.launch in STARTERS else spec.framework
    special_frameworks = {"tensorflow", "none"} if spec.resources.ranks > 1 else {"torch", "jax"}
    return framework if framework in special_frameworks else None
