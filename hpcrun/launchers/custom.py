"""A launcher that a site file defines, such as ``launcher.command = "mylaunch -n {ranks} -N {nodes}"``."""

from __future__ import annotations

import re
import shlex
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.launchers import REGISTRY, load_launcher
from hpcrun.launchers.base import Launcher

if TYPE_CHECKING:
    from hpcrun.sites.tables import CustomLauncher
    from hpcrun.spec import JobSpec

PLACEHOLDERS = ("ranks", "nodes", "ntasks_per_node", "cpus_per_task", "gpus_per_node", "hostfile")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")

RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID", "SLURM_PROCID")
LOCAL_RANK_VARIABLES = (
    *("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "PALS_LOCAL_RANKID"),
    "SLURM_LOCALID",
)
LOCAL_SIZE_VARIABLES = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE", "PALS_LOCAL_SIZE")

_COPIED_ATTRIBUTES = ("ignores_failures", "hides_signals", "uses_slurm", "bash_file")
"""Attributes of a built-in launcher that do not depend on the arguments of its program."""


def split_command(command: str) -> list[str]:
    """Split a command line into words as bash does, and check its placeholders.

    Raises:
        ValueError: A quote is not closed, the command is empty, or a placeholder is unknown.
    """
    words = shlex.split(command)
    if not words or "{" in words[0]:
        raise ValueError("must begin with the launcher's name, such as mylaunch -n {ranks}")
    for name in _PLACEHOLDER.findall(command):
        if name not in PLACEHOLDERS:
            known_placeholders = ", ".join(f"{{{placeholder}}}" for placeholder in PLACEHOLDERS)
            raise ValueError(f"unknown placeholder {{{name}}}; known: {known_placeholders}")
    return words


def build_launcher(table: CustomLauncher) -> Launcher:
    """Return the launcher that a site file defines; by default, it has the rank variables of all MPI launchers.

    A launcher that runs the program of a built-in launcher behaves like the built-in launcher.
    """
    name = PurePath(split_command(table.command)[0]).name
    built_in_launcher = load_launcher(name) if name in REGISTRY.built_in else None
    behaviour = {key: getattr(built_in_launcher, key) for key in _COPIED_ATTRIBUTES} if built_in_launcher else {}
    return Launcher(
        name=name,
        command=partial(_build_command, table.command),
        rank=(table.rank,) if table.rank else RANK_VARIABLES,
        local_rank=(table.local_rank,) if table.local_rank else LOCAL_RANK_VARIABLES,
        local_ranks=(table.local_ranks,) if table.local_ranks else LOCAL_SIZE_VARIABLES,
        hostfile=table.hostfile,
        stop_signal=table.stop_signal,
        **behaviour,
    )


def _build_command(command: str, spec: JobSpec, hostfile: str) -> list[str]:
    resources = spec.resources
    values = {
        "ranks": resources.ranks,
        "nodes": resources.nodes,
        "ntasks_per_node": resources.ntasks_per_node,
        "cpus_per_task": resources.cpus_per_task,
        "gpus_per_node": resources.gpus,
        "hostfile": hostfile,
    }

    def fill_placeholder(match: re.Match[str]) -> str:
        if values[match[1]] is None:
            option = match[1].replace("_", "-")
            raise HpcrunError(
                f"launcher.command of site {spec.site.name} has {{{match[1]}}}, but the job does not set it",
                hint=f"give --{option}",
            )
        return str(values[match[1]])

    return [_PLACEHOLDER.sub(fill_placeholder, word) for word in split_command(command)]
