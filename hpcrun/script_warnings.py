"""Warnings about scripts that expect another start of their ranks than the job gives them."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.node_launch import STARTERS
from hpcrun.script_files import is_python
from hpcrun.script_names import read_script
from hpcrun.script_start import read_start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.spec import JobSpec


def find_warnings(spec: JobSpec) -> tuple[str, ...]:
    """Return the warnings.

    Raises:
        HpcrunError: There is one, and the job has ``--strict``.
    """
    if spec.framework in ("hpcrun", "horovod"):
        return ()
    found = [*_find_unset_variables(spec), *_find_own_processes(spec), *_find_missing_roles(spec)]
    if found and spec.strict:
        raise HpcrunError(f"--strict: {found[0][0]}", hint=found[0][1])
    return tuple(f"{warning}\nHINT: {hint}" for warning, hint in found)


def _find_unset_variables(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield a warning and hint for each value that the script expects from a launcher of PyTorch, not from hpcrun."""
    script = read_start(spec.argv, spec.directory)
    given_variables = {*dict(spec.environment), *spec.site.environment, *os.environ}
    if script.torchrun_variable and spec.launch not in STARTERS and script.torchrun_variable not in given_variables:
        yield f"the script reads {script.torchrun_variable}, which only torchrun sets", "--launch torchrun"
    option = script.local_rank_option
    is_given = any(word.startswith(("--local_rank", "--local-rank")) for word in spec.argv)
    is_needed = spec.resources.ranks > 1 and spec.launch in {None, "ranks"} and spec.framework != "none"
    if option and is_needed and not is_given and not read_script(spec.argv, spec.directory).local_rank_variable:
        warning = f"the script expects {option} from torch.distributed.launch: each rank would use its default"
        line = f"exec {shlex.join(_short_command(spec))} {option}=$LOCAL_RANK"
        command = f"--framework torch -- bash -c {shlex.quote(line)}"
        yield warning, f'default=int(os.environ["LOCAL_RANK"]) in the script; or without a change: {command}'


def _short_command(spec: JobSpec) -> tuple[str, ...]:
    """Return the command line of a rank without the folders of Python and of the script that it runs."""
    program, *words = spec.argv
    if not is_python(program):
        return spec.argv
    script = [os.path.relpath(word, spec.directory) if word.startswith("/") else word for word in words[:1]]
    return ("python", *script, *words[1:])


def _find_own_processes(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield a warning and hint for processes that the script starts itself, or connects on one node only."""
    script = read_start(spec.argv, spec.directory)
    nodes = spec.resources.nodes or 1
    ranks_per_node = -(-spec.resources.ranks // nodes)
    if script.spawns and spec.launch != "nodes" and ranks_per_node > 1:
        warning = (
            f"each of the {ranks_per_node} ranks of a node would start processes of its own, by torch.multiprocessing"
        )
        yield warning, "--launch nodes starts the script once per node"
    if script.local_host and nodes > 1:
        warning = (
            f"the script names {script.local_host} as the host of rank 0: the ranks of {nodes} nodes cannot connect"
        )
        hint = "without that line, MASTER_ADDR and MASTER_PORT are those of this job (docs/frameworks.md); or -N 1"
        yield warning, hint


def _find_missing_roles(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield a warning and hint for a script that needs parameter servers, which would wait for a chief forever."""
    given_variables = {*dict(spec.environment), *spec.site.environment, *os.environ}
    if spec.framework != "tensorflow" or spec.resources.ranks == 1 or "TF_CONFIG" in given_variables:
        return
    if read_script(spec.argv, spec.directory).expects_parameter_servers:
        warning = (
            "the script uses ParameterServerStrategy, but in TF_CONFIG each rank is a worker: "
            "they would wait for a chief until the time limit"
        )
        hint = "hpcrun workload new mine --from strategies: its roles.py sets TF_CONFIG (docs/strategies.md#roles)"
        yield warning, hint
