"""Configuration of a cluster: numbers, names, addresses and paths."""

import dataclasses
import json
import os
import re
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.errors import ClusterError

REPO = Path(__file__).resolve().parents[2]
SETTINGS = "cluster.json"
PROCTRACKS = ("pgid", "linuxproc", "cgroup")


def state_root() -> Path:
    """Return the directory that holds one state directory for each cluster."""
    return Path(os.environ.get("HPCRUN_CLUSTER_ROOT", f"/tmp/hpcrun-cluster-{os.getuid()}")).resolve()


def default_shared_paths() -> tuple[str, ...]:
    """Return the directories that nodes need besides the state directory: the checkout and this Python."""
    return tuple(dict.fromkeys(map(str, (REPO, sys.prefix, sys.base_prefix))))


@dataclass(frozen=True)
class Config:
    """Configuration of one cluster.

    Host names and addresses derive from the cluster's name, so that two clusters do not conflict: cluster `n` has nodes
    n1, n2, ..., the controller n-ctl, the interface hpcrun-n and its own subnet 10.77.x.0/24. Every cluster preempts:
    Slurm requeues a job in partition `low` when one in `high` needs its nodes. Job ids start at 1 in every cluster.

    Args:
        name: 1 to 8 lower-case letters.
        nodes: Number of nodes, at most 200.
        gpus: Simulated H100 GPUs of each node.
        cpus: CPUs that each node reports.
        real_memory: Memory that each node reports, in MB.
        accounting: Whether to run slurmdbd.
        shared_paths: Directories that all nodes share, also under /tmp, which is otherwise private to each node.
        proctrack: ProctrackType of Slurm: `pgid`, `linuxproc` or `cgroup`.
        min_job_age: Seconds after which slurmctld forgets an ended job.
        prolog: Run time of the Prolog in seconds; 0 means no Prolog.
        prolog_flags: PrologFlags of Slurm, e.g. `Alloc`: run the Prolog before the job, not before its first step.
        epilog: Run time of the Epilog in seconds; 0 means no Epilog.
        banners: Whether sbatch and srun first print a banner to stdout and stderr, on all hosts.
        enforce_part_limits: Whether sbatch rejects jobs that no partition can run (EnforcePartLimits=ALL).
        enforce_limits: Whether slurmctld enforces accounts and the limits of QoS (AccountingStorageEnforce).
        over_memory_kill: Whether slurmd kills steps that use more than their memory (OverMemoryKill), as cgroups do.
        node_prefix: Prefix of the node names, e.g. `gpu-A01r`; empty means the cluster's name.
        drained: Number of drained nodes, counted from the last one.
        reserved: Number of nodes before those in the reservation `course`.
        first_job_id: Id of the first job.
    """

    name: str = "n"
    nodes: int = 2
    gpus: int = 4
    cpus: int = 8
    real_memory: int = 4000
    accounting: bool = True
    shared_paths: tuple[str, ...] = dataclasses.field(default_factory=default_shared_paths)
    proctrack: str = "pgid"
    min_job_age: int = 300
    prolog: int = 0
    prolog_flags: str = ""
    epilog: int = 0
    banners: bool = False
    enforce_part_limits: bool = False
    enforce_limits: bool = False
    over_memory_kill: bool = False
    node_prefix: str = ""
    drained: int = 0
    reserved: int = 0
    first_job_id: int = 1

    def __post_init__(self) -> None:
        if not re.fullmatch("[a-z]{1,8}", self.name):
            raise ClusterError(
                f"name {self.name!r}: must be 1 to 8 lower-case letters (it is part of host and interface names)"
            )
        if not 1 <= self.nodes <= 200:
            raise ClusterError(f"{self.nodes} nodes: must be 1 to 200, to fit the subnet 10.77.x.0/24")
        if self.proctrack not in PROCTRACKS:
            raise ClusterError(f"proctrack {self.proctrack!r}: must be one of {', '.join(PROCTRACKS)}")
        if not re.fullmatch("([A-Za-z][A-Za-z0-9-]{0,11})?", self.node_prefix):
            raise ClusterError(f"node prefix {self.node_prefix!r}: must be at most 12 letters, digits and hyphens")
        if self.drained + self.reserved >= self.nodes:
            raise ClusterError(
                f"{self.drained} drained and {self.reserved} reserved nodes: no other node is left of {self.nodes}"
            )
        if len(str(self.run / "munge.sock")) > 100:
            raise ClusterError(
                f"{self.state} is too long for the path of a socket\nHINT: set HPCRUN_CLUSTER_ROOT to a short path"
            )

    @classmethod
    def load(cls, name: str) -> "Config":
        """Read the configuration that `files.write_state` wrote.

        Args:
            name: The cluster's name.

        Returns:
            Its configuration.

        Raises:
            ClusterError: There is no such cluster.
        """
        path = cls(name).state / SETTINGS
        if not path.exists():
            raise ClusterError(f"cluster {name} is not running\nHINT: python -m tests.cluster up --name {name}")
        fields = json.loads(path.read_text())
        return cls(**fields | {"shared_paths": tuple(fields["shared_paths"])})

    @property
    def state(self) -> Path:
        """Return the directory with all files of the cluster, which `down` removes."""
        return state_root() / self.name

    @property
    def shared(self) -> Path:
        """Return the directory that all nodes and this machine share, for run directories."""
        return self.state / "shared"

    @property
    def log(self) -> Path:
        """Return the directory of the daemons' logs."""
        return self.state / "log"

    @property
    def run(self) -> Path:
        """Return the directory of sockets and pid files."""
        return self.state / "run"

    @property
    def slurm_conf(self) -> Path:
        """Return the path of slurm.conf, the value of SLURM_CONF."""
        return self.state / "etc/slurm.conf"

    @property
    def interface(self) -> str:
        """Return this machine's network interface to the cluster."""
        return f"hpcrun-{self.name}"

    @property
    def controller(self) -> str:
        """Return the name of the host of slurmctld and slurmdbd."""
        return f"{self.name}-ctl"

    @property
    def nodelist(self) -> list[str]:
        """Return the nodes' names."""
        return [f"{self.node_prefix or self.name}{i}" for i in range(1, self.nodes + 1)]

    @property
    def available(self) -> list[str]:
        """Return the nodes that run jobs: those neither drained nor reserved."""
        return self.nodelist[: self.nodes - self.drained - self.reserved]

    @property
    def path(self) -> str:
        """Return the PATH of daemons and of commands on hosts."""
        return f"{self.banner_path}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

    @property
    def banner_path(self) -> str:
        """Return the first entry of PATH, with its colon: the folder of the wrappers that print banners."""
        return f"{self.state}/bin:" if self.banners else ""

    @property
    def subnet(self) -> str:
        """Return the first three bytes of the cluster's addresses."""
        return f"10.77.{zlib.crc32(self.name.encode()) % 256}"

    def address(self, host: str = "") -> str:
        """Return the IPv4 address of a node, of the controller, or by default of this machine."""
        last = {"": 1, self.controller: 2}.get(host) or 11 + self.nodelist.index(host)
        return f"{self.subnet}.{last}"

    def environ(self) -> dict[str, str]:
        """Return the environment of daemons and commands on hosts, without the caller's variables."""
        return {
            "PATH": self.path,
            "HOME": os.environ.get("HOME", "/root"),
            "LANG": "C.UTF-8",
            "TERM": os.environ.get("TERM", "dumb"),
            "SLURM_CONF": str(self.slurm_conf),
        }
