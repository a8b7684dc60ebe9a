"""What Slurm says of itself: its version, settings and partitions."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from hpcrun.errors import HpcrunError
from hpcrun.schedulers import gres
from hpcrun.schedulers.ask import ask
from hpcrun.survey.slurm import config


@dataclass
class Partition:
    """A partition, as sinfo(1) tells of it; its nodes may differ, and what counts is the most that one has.

    Attributes:
        default: Whether jobs that name none go there.
        up: Whether it takes jobs.
        max_time: The longest time limit, as Slurm writes it.
        max_nodes: The most nodes of a job.
        cpus: CPUs of a node.
        memory: Memory of a node in MiB.
        gpus_per_node: GPUs of a node.
        gpus: GPUs of a node, by type; the type is empty where Slurm has none.
    """

    default: bool
    up: bool
    max_time: str
    max_nodes: int = 0
    cpus: int = 0
    memory: int = 0
    gpus_per_node: int = 0
    gpus: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Cluster:
    """A Slurm that answers.

    Attributes:
        version: Its version.
        controller: The host of the controller that is up.
        settings: What ``scontrol show config`` says.
        partitions: Its partitions, by name.
    """

    version: str
    controller: str
    settings: dict[str, str]
    partitions: dict[str, Partition]


def look() -> Cluster:
    """Ask Slurm.

    Raises:
        HpcrunError: It is not there, or does not answer.
    """
    conf = os.environ.get("SLURM_CONF")
    if conf and not Path(conf).exists():  # Slurm's commands would wait for it for a minute
        raise HpcrunError(f"SLURM_CONF={conf} is not there", hint="unset SLURM_CONF, or start that cluster")
    if missing := [name for name in ("sbatch", "squeue", "scancel", "sinfo", "scontrol") if not shutil.which(name)]:
        hint = "work on a login node; some clusters have Slurm's commands in a module; --site local needs none"
        raise HpcrunError(f"{', '.join(missing)}: not on PATH", hint=hint)
    ping = ask(["scontrol", "ping"])
    up = re.search(r"(?:at (\S+) )?is UP", ping.out)
    if not up:
        hint = "wait, or ask the cluster's administrators: no job can be submitted now"
        told = [line for line in map(str.strip, ping.out.splitlines()) if line.startswith("Slurmctld")]  # no asterisks
        raise HpcrunError(f"the controller does not answer: {'; '.join(told) or ping.complaint}", hint=hint)
    settings = config(ask(["scontrol", "show", "config"]).out)
    version = settings.get("SLURM_VERSION") or ask(["sinfo", "--version"]).out.strip()
    return Cluster(version.removeprefix("slurm "), up[1] or "", settings, _partitions())


def _partitions() -> dict[str, Partition]:
    answer = ask(["sinfo", "--noheader", "--exact", "--format=%R|%P|%a|%l|%D|%c|%m|%G|%s"])
    if answer.code != 0:
        raise HpcrunError(f"sinfo fails: {answer.complaint}", hint="ask the cluster's administrators")
    found: dict[str, Partition] = {}
    for line in answer.out.splitlines():
        name, starred, up, time, nodes, cpus, memory, devices, size = (*map(str.strip, line.split("|")), *[""] * 9)[:9]
        if not name:
            continue
        one = found.setdefault(name, Partition(starred.endswith("*"), up == "up", time))
        one.max_nodes += _number(nodes)
        one.cpus, one.memory = max(one.cpus, _number(cpus)), max(one.memory, _number(memory))
        there = gres.gpus(devices)
        one.gpus_per_node = max(one.gpus_per_node, sum(there.values()))
        one.gpus |= {kind: max(one.gpus.get(kind, 0), count) for kind, count in there.items()}
        most = size.rpartition("-")[2]
        if most.isdigit():
            one.max_nodes = min(one.max_nodes, int(most))
    return found


def _number(text: str) -> int:
    digits = re.match(r"\d+", text)
    return int(digits[0]) if digits else 0
