"""Warnings about scripts that expect another start of their ranks than the job gives them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.node_launch import STARTERS
from hpcrun.script_start import read_start

if TYPE_CHECKING:
    from hpcrun.spec import JobSpec


def find_warnings(spec: JobSpec) -> tuple[str, ...]:
    """Return the warnings.

    Raises:
        HpcrunError: There is one, and the job has ``--strict``.
    """
    if spec.framework in ("hpcrun", "horovod"):
        return ()
    script = read_start(spec.argv, spec.directory)
    nodes = spec.resources.nodes or 1
    ranks_per_node = -(-spec.resources.ranks // nodes)
    given_variables = {*dict(spec.environment), *spec.site.environment, *os.environ}
    found: list[tuple[str, str]] = []
    if script.torchrun_variable and spec.launch not in STARTERS and script.torchrun_variable not in given_variables:
        found.append((f"the script reads {script.torchrun_variable}, which only torchrun sets", "--launch torchrun"))
    if script.spawns and spec.launch != "nodes" and ranks_per_node > 1:
        warning = (
            f"each of the {ranks_per_node} ranks of a node would start processes of its own, by torch.multiprocessing"
        )
        found.append((warning, "--launch nodes starts the script once per node"))
    if script.local_host and nodes > 1:
        warning = (
            f"the script names {script.local_host} as the host of rank 0: the ranks of {nodes} nodes cannot connect"
        )
        hint = "without that line, MASTER_ADDR and MASTER_PORT are those of this job (docs/frameworks.md); or -N 1"
        found.append((warning, hint))
    if found and spec.strict:
        raise HpcrunError(f"--strict: {found[0][0]}", hint=found[0][1])
    return tuple(f"{warning}\nHINT: {hint}" for warning, hint in found)
