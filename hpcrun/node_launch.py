"""Jobs with one process per node (``--launch``): the script, or torchrun or Accelerate, which starts the ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError, pluralize

if TYPE_CHECKING:
    from hpcrun.resources import Resources
    from hpcrun.spec import JobSpec

STARTERS = {"torchrun": "torch.distributed.run", "accelerate": "accelerate.commands.launch"}
"""The Python module of each program that starts ranks."""

SIGNALS_VARIABLE = "PET_SIGNALS_TO_HANDLE"
"""The variable with the default of torchrun's --signals-to-handle (PyTorch 2.9), which Accelerate uses, too."""

_SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR2"
"""torchrun's default signals, and the signal that jobs get before the time limit."""

_INCOMPATIBLE_FRAMEWORKS = {
    "torchrun": ("hpcrun", "horovod", "tensorflow", "jax"),
    "accelerate": ("hpcrun", "horovod", "tensorflow", "jax"),
    "nodes": ("hpcrun", "horovod"),
}
"""Frameworks that do not work with a value of --launch, by that value."""


def launched_resources(resources: Resources, launch: str | None) -> Resources:
    """Return the resources of the processes that hpcrun's launcher starts.

    Args:
        resources: The resources of the ranks.
        launch: The value of ``--launch``.

    Raises:
        HpcrunError: The nodes have different numbers of ranks.
    """
    return resources if launch in {None, "ranks"} else resources.one_process_per_node()


def launcher_spec(spec: JobSpec) -> JobSpec:
    """Return a job with the resources of the processes that hpcrun's launcher starts."""
    return replace(spec, resources=launched_resources(spec.resources, spec.launch))


def require_matching_script(spec: JobSpec) -> None:
    """Refuse a ``--launch`` that does not match the script.

    Raises:
        HpcrunError: The framework of the ranks needs a different ``--launch``, or the program is not a Python script.
    """
    incompatible = _INCOMPATIBLE_FRAMEWORKS.get(spec.launch or "", ())
    if spec.framework in incompatible:
        starts = {"nodes": "one process per node"}.get(spec.launch or "", "ranks for torch.distributed")
        message = f"--launch={spec.launch} starts {starts}, but the framework of this script is {spec.framework}"
        raise HpcrunError(message, hint="leave --launch out; if it is a script for PyTorch, add --framework torch")
    if spec.launch in STARTERS:
        for argv in [task.argv for task in spec.tasks] or [spec.argv]:
            count_own_words(spec.launch, argv)


def describe(spec: JobSpec) -> str:
    """Return one line about the processes that start the ranks; empty if hpcrun's launcher starts them."""
    if spec.launch in {None, "ranks"}:
        return ""
    nodes = launcher_spec(spec).resources.ranks
    ranks = pluralize(spec.resources.ranks // nodes, "rank")
    node_text = f" on each of {nodes} nodes" if nodes > 1 else ""
    if spec.launch == "nodes":
        return f"launch     one process{node_text}, with the cores and GPUs of {ranks}"
    return f"launch     {spec.launch} starts {ranks}{node_text}"


def launch_variables(spec: JobSpec) -> dict[str, str]:
    """Return the environment variables for the program that starts the ranks."""
    return {SIGNALS_VARIABLE: _SIGNALS} if spec.launch in STARTERS else {}


def count_own_words(launch: str, argv: tuple[str, ...]) -> int:
    """Return the number of words before the script or ``-m``: the interpreter, and options that can be dropped."""
    count = 1
    while argv[count : count + 1] == ("-u",):
        count += 1
    is_script = len(argv) > count and (argv[count].endswith(".py") or argv[count] == "-m")
    if not (argv[0].rpartition("/")[2].startswith("python") and is_script):
        message = f"--launch={launch} starts Python scripts, but the program is {' '.join(argv[:2])}"
        raise HpcrunError(message, hint=f"hpcrun submit train.py --launch {launch}")
    return count
