"""Translation of resource lists of other batch systems, such as ``-l nodes=2:ppn=4``, to options of hpcrun."""

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
"""Names of options in PBS, Grid Engine and LSF, by hpcrun's option."""

_OPTIONS = {name: option for option, names in _NAMES.items() for name in names.split()}


def translate_resources(lists: Sequence[str]) -> list[str]:
    """Return hpcrun's options for resource lists; resources for which hpcrun has no option are left out.

    Args:
        lists: The values of PBS's or Grid Engine's ``-l``, such as ``select=2:ncpus=8:ngpus=4`` and ``h_rt=3600``.
    """
    requested_amounts = dict(pair.partition("=")[::2] for text in lists for pair in re.split("[,:](?=[a-z_]+=)", text))
    options_by_name = {
        _OPTIONS[name]: _translate_value(_OPTIONS[name], value)
        for name, value in requested_amounts.items()
        if name in _OPTIONS
    }
    if (
        "mpiprocs" in requested_amounts and options_by_name.get("--cpus-per-task", "").isdigit()
    ):  # ncpus counts the cores of all ranks on a node
        ranks = int(requested_amounts["mpiprocs"]) if requested_amounts["mpiprocs"].isdigit() else 1
        options_by_name["--cpus-per-task"] = str(max(1, int(options_by_name["--cpus-per-task"]) // max(1, ranks)))
    return [
        f"{option}={value}"
        for option, value in sorted(options_by_name.items(), key=lambda one: [*_NAMES].index(one[0]))
    ]


def _translate_value(option: str, value: str) -> str:
    if option == "--time" and value.isdigit():  # a plain number is in seconds
        return str(max(1, int(value) // 60))
    return propose_value(option.removeprefix("--").replace("-", "_"), value) or value
