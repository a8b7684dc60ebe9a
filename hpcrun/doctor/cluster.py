"""Whether Slurm answers, and what it says of itself."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcrun.doctor import discover_slurm
from hpcrun.doctor.discover_commands import SLURM, answers
from hpcrun.errors import HpcrunError
from hpcrun.schedulers.ask import ask
from hpcrun.schedulers.environment import require_configuration

if TYPE_CHECKING:
    from hpcrun.doctor.discover_commands import Answer
    from hpcrun.doctor.discover_slurm import Partition


@dataclass(frozen=True)
class Cluster:
    """A Slurm that answers.

    Attributes:
        controller: The host of the controller that is up.
        settings: What ``scontrol show config`` says.
        partitions: Its partitions, by name.
        mpi_types: What ``srun --mpi=list`` says.
    """

    controller: str
    settings: dict[str, str]
    partitions: dict[str, Partition]
    mpi_types: Answer

    @property
    def accounted(self) -> bool:
        """Whether there is a database of accounts and QoS."""
        return "slurmdbd" in self.settings.get("AccountingStorageType", "")


def look(conf: str | None) -> Cluster:
    """Ask Slurm.

    Args:
        conf: Its slurm.conf; None where the site does not say.

    Raises:
        HpcrunError: It is not there, or does not answer.
    """
    require_configuration(conf)
    if missing := [name for name in ("sbatch", "squeue", "scancel", "sinfo", "scontrol") if not shutil.which(name)]:
        hint = "work on a login node; some clusters have Slurm's commands in a module; --site local needs none"
        raise HpcrunError(f"{', '.join(missing)}: not on PATH", hint=hint)
    ping = ask(["scontrol", "ping"], conf=conf)
    up = re.search(r"(?:at (\S+) )?is UP", ping.out)
    if not up:
        hint = "wait, or ask the cluster's administrators: no job can be submitted now"
        told = [line for line in map(str.strip, ping.out.splitlines()) if line.startswith("Slurmctld")]  # no asterisks
        raise HpcrunError(f"the controller does not answer: {'; '.join(told) or ping.complaint}", hint=hint)
    said = answers(SLURM, conf)
    for question in ("partitions", "nodes"):
        if fault := said[question].fault:
            raise HpcrunError(f"{SLURM[question][0]} fails: {fault}", hint="ask the cluster's administrators")
    found = discover_slurm.partitions(said["partitions"].text, said["nodes"].text)
    settings = discover_slurm.config(said["config"].text)
    return Cluster(up[1] or "", settings, {one.name: one for one in found}, said["mpi types"])
