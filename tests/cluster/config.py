"""What one cluster is made of: numbers, names, addresses and paths."""

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


def root() -> Path:
    """Return the directory that holds one state directory for each cluster."""
    return Path(os.environ.get("HPCRUN_CLUSTER_ROOT", f"/tmp/hpcrun-cluster-{os.getuid()}")).resolve()


def default_shared_paths() -> tuple[str, ...]:
    """Return what nodes must see besides the state directory: the checkout and this Python."""
    return tuple(dict.fromkeys(map(str, (REPO, sys.prefix, sys.base_prefix))))


@dataclass(frozen=True)
class Config:
    """One cluster.

    All else comes from the name, so that two clusters do not meet: cluster `n` has nodes n1, n2, ..., the controller
    n-ctl, the interface hpcrun-n and a 10.77.x.0/24 of its own. Every cluster preempts: a job in partition `low` goes
    back to the queue when one in `high` needs its nodes. Job ids start at 1, so those of two clusters are equal.

    Args:
        name: 1 to 8 lower-case letters.
        nodes: How many nodes, at most 200.
        gpus: h100s that each node pretends to have.
        cpus: CPUs that each node pretends to have.
        real_memory: MB that each node pretends to have.
        accounting: Whether there is a slurmdbd.
        shared_paths: Directories that nodes see even under /tmp, of which each node has its own.
        proctrack: How Slurm knows a job's processes: `pgid`, `linuxproc` or `cgroup`.
        min_job_age: Seconds after which slurmctld forgets an ended job.
        prolog: Seconds that a Prolog takes on each node; 0 is without one.
        prolog_flags: PrologFlags of Slurm, e.g. `Alloc`: it runs before the job starts, not before its first step.
        epilog: Seconds that an Epilog takes on each node; 0 is without one.
        banners: Whether sbatch and srun print a banner to stdout and to stderr first, on all hosts.
        enforce_part_limits: Whether sbatch refuses what no partition can run (EnforcePartLimits=ALL).
        node_prefix: What comes before a node's number, e.g. `gpu-A01r`; empty is the cluster's name.
        drained: How many nodes are drained, from the last one.
        reserved: How many nodes before those are in the reservation `course`.
        first_job_id: The first job's id.
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
    node_prefix: str = ""
    drained: int = 0
    reserved: int = 0
    first_job_id: int = 1

    def __post_init__(self) -> None:
        if not re.fullmatch("[a-z]{1,8}", self.name):
            raise ClusterError(f"name {self.name!r}: 1 to 8 lower-case letters (nodes and interfaces are named so)")
        if not 1 <= self.nodes <= 200:
            raise ClusterError(f"{self.nodes} nodes: 1 to 200, as many as a 10.77.x.0/24 has room for")
        if self.proctrack not in PROCTRACKS:
            raise ClusterError(f"proctrack {self.proctrack!r}: one of {', '.join(PROCTRACKS)}")
        if not re.fullmatch("([A-Za-z][A-Za-z0-9-]{0,11})?", self.node_prefix):
            raise ClusterError(f"node prefix {self.node_prefix!r}: at most 12 letters, digits and hyphens")
        if self.drained + self.reserved >= self.nodes:
            raise ClusterError(f"{self.drained} drained and {self.reserved} reserved of {self.nodes} nodes leave none")
        if len(str(self.run / "munge.sock")) > 100:
            raise ClusterError(f"{self.state} is too long for a socket\nHINT: set HPCRUN_CLUSTER_ROOT to a short path")

    @classmethod
    def load(cls, name: str) -> "Config":
        """Read back what `files.write` wrote.

        Args:
            name: The cluster's name.

        Returns:
            Its configuration.

        Raises:
            ClusterError: There is no such cluster.
        """
        path = cls(name).state / SETTINGS
        if not path.exists():
            raise ClusterError(f"cluster {name} is not up\nHINT: python -m tests.cluster up --name {name}")
        fields = json.loads(path.read_text())
        return cls(**fields | {"shared_paths": tuple(fields["shared_paths"])})

    @property
    def state(self) -> Path:
        """Return the directory that is the whole cluster, gone after `down`."""
        return root() / self.name

    @property
    def shared(self) -> Path:
        """Return the directory that every node and this machine see: run directories go here."""
        return self.state / "shared"

    @property
    def log(self) -> Path:
        """Return where every daemon logs."""
        return self.state / "log"

    @property
    def run(self) -> Path:
        """Return where the sockets and pid files are."""
        return self.state / "run"

    @property
    def slurm_conf(self) -> Path:
        """Return the file that SLURM_CONF names."""
        return self.state / "etc/slurm.conf"

    @property
    def interface(self) -> str:
        """Return this machine's network interface towards the cluster."""
        return f"hpcrun-{self.name}"

    @property
    def controller(self) -> str:
        """Return the host that slurmctld and slurmdbd run on."""
        return f"{self.name}-ctl"

    @property
    def nodelist(self) -> list[str]:
        """Return the nodes' names."""
        return [f"{self.node_prefix or self.name}{i}" for i in range(1, self.nodes + 1)]

    @property
    def available(self) -> list[str]:
        """Return the nodes that run jobs: neither drained nor reserved."""
        return self.nodelist[: self.nodes - self.drained - self.reserved]

    @property
    def path(self) -> str:
        """Return the PATH of daemons and of commands on hosts."""
        return f"{self.banner_path}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

    @property
    def banner_path(self) -> str:
        """Return what comes first on everybody's PATH: the folder of the commands with banners, and a colon."""
        return f"{self.state}/bin:" if self.banners else ""

    @property
    def subnet(self) -> str:
        """Return the first three bytes of every address."""
        return f"10.77.{zlib.crc32(self.name.encode()) % 256}"

    def address(self, host: str = "") -> str:
        """Return the IPv4 address of a node, of the controller, or by default of this machine."""
        last = {"": 1, self.controller: 2}.get(host) or 11 + self.nodelist.index(host)
        return f"{self.subnet}.{last}"

    def environ(self) -> dict[str, str]:
        """Return the environment of daemons and of commands on hosts: nothing of the caller's leaks in."""
        return {
            "PATH": self.path,
            "HOME": os.environ.get("HOME", "/root"),
            "LANG": "C.UTF-8",
            "TERM": os.environ.get("TERM", "dumb"),
            "SLURM_CONF": str(self.slurm_conf),
        }
