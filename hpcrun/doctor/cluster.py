"""The state and configuration of a Slurm cluster."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

from hpcrun.doctor import discover_slurm
from hpcrun.doctor.discover_commands import SLURM_COMMANDS, run_commands
from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen
from hpcrun.schedulers.environment import require_slurm_conf
from hpcrun.schedulers.slurm_partitions import parse_partitions

if TYPE_CHECKING:
    from hpcrun.schedulers.command import CommandResult
    from hpcrun.schedulers.slurm_client import SlurmClient
    from hpcrun.schedulers.slurm_partitions import SlurmPartition


@frozen
class DiscoveredCluster:
    """A Slurm cluster that responds.

    Attributes:
        controller: The host of the running controller.
        settings: The output of ``scontrol show config``.
        partitions: The partitions, by name.
        mpi_types: The output of ``srun --mpi=list``.
    """

    controller: str
    settings: dict[str, str]
    partitions: dict[str, SlurmPartition]
    mpi_types: CommandResult

    @property
    def has_accounting(self) -> bool:
        """Whether the cluster has an accounting database."""
        return "slurmdbd" in self.settings.get("AccountingStorageType", "")


def query_cluster(slurm: SlurmClient) -> DiscoveredCluster:
    """Query the state and configuration of a Slurm cluster.

    Args:
        slurm: The client of the Slurm cluster.

    Raises:
        HpcrunError: Slurm is not installed or does not respond.
    """
    require_slurm_conf(slurm.conf)
    if missing := [name for name in ("sbatch", "squeue", "scancel", "sinfo", "scontrol") if not shutil.which(name)]:
        hint = "use a login node; on some clusters a module provides Slurm's commands; --site local works without them"
        raise HpcrunError(f"{', '.join(missing)}: not on PATH", hint=hint)
    ping_result = slurm.query(["scontrol", "ping"])
    status_match = re.search(r"(?:at (\S+) )?is UP", ping_result.out)
    if not status_match:
        hint = "wait, or ask the cluster's administrators: no job can be submitted now"
        lines = [
            line for line in map(str.strip, ping_result.out.splitlines()) if line.startswith("Slurmctld")
        ]  # omit scontrol's lines of asterisks
        raise HpcrunError(
            f"the controller does not respond: {'; '.join(lines) or ping_result.error_message}", hint=hint
        )
    results = run_commands(SLURM_COMMANDS, slurm.query)
    for query_name in ("partitions", "nodes"):
        if fault := results[query_name].failure:
            raise HpcrunError(
                f"{SLURM_COMMANDS[query_name][0]} fails: {fault}", hint="ask the cluster's administrators"
            )
    partitions = parse_partitions(results["partitions"].text, results["nodes"].text)
    settings = discover_slurm.parse_config(results["config"].text)
    return DiscoveredCluster(
        status_match[1] or "", settings, {one.name: one for one in partitions}, results["mpi types"]
    )
