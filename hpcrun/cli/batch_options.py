"""Resource lists of other batch systems, as options of hpcrun: ``-l nodes=2:ppn=4,walltime=1:00:00``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hpcrun.resource_hints import propose_value

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAMES = {
    "--nodes": "nodes select nodect",
    "--ntasks": "procs slots",
    "--ntasks-per-node": "ppn mpiprocs ptile",
    "--cpus-per-task": "ncpus ompthreads",
    "--gpus-per-node": "gpus ngpus gpu num",
    "--mem": "mem vmem pmem h_vmem mem_free s_vmem",
    "--time": "walltime h_rt s_rt",
}
"""What PBS, Grid Engine and LSF call each option."""

_OPTIONS = {name: option for option, names in _NAMES.items() for name in names.split()}


def translate_resources(lists: Sequence[str]) -> list[str]:
    """Return options of hpcrun for resource lists; those without one are left out.

    Args:
        lists: The values of PBS's or Grid Engine's ``-l``, such as ``select=2:ncpus=8:ngpus=4`` and ``h_rt=3600``.
    """
    given = dict(pair.partition("=")[::2] for text in lists for pair in re.split("[,:](?=[a-z_]+=)", text))
    found = {_OPTIONS[name]: _adapt(_OPTIONS[name], value) for name, value in given.items() if name in _OPTIONS}
    if "mpiprocs" in given and found.get("--cpus-per-task", "").isdigit():  # ncpus are those of all ranks of a node
        ranks = int(given["mpiprocs"]) if given["mpiprocs"].isdigit() else 1
        found["--cpus-per-task"] = str(max(1, int(found["--cpus-per-task"]) // max(1, ranks)))
    return [f"{option}={value}" for option, value in sorted(found.items(), key=lambda one: [*_NAMES].index(one[0]))]


def _adapt(option: str, value: str) -> str:
    if option == "--time" and value.isdigit():  # seconds
        return str(max(1, int(value) // 60))
    return propose_value(option.removeprefix("--").replace("-", "_"), value) or value
