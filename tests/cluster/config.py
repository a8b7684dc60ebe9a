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
    n-ctl, the interface hpcrun-n and a 10.77.x.0/24 of its own.

    Args:
        name: 1 to 8 lower-case letters.
        nodes: How many nodes, at most 200.
        gpus: h100s that each node pretends to have.
        cpus: CPUs that each node pretends to have.
        real_memory: MB that each node pretends to have.
        accounting: Whether there is a slurmdbd.
        shared_paths: Directories that nodes see even under /tmp, of which each node has its own.
    """

    name: str = "n"
    nodes: int = 2
    gpus: int = 4
    cpus: int = 8
    real_memory: int = 4000
    accounting: bool = True
    shared_paths: tuple[str, ...] = dataclasses.field(default_factory=default_shared_paths)

    def __post_init__(self) -> None:
        if not re.fullmatch("[a-z]{1,8}", self.name):
            raise ClusterError(f"name {self.name!r}: 1 to 8 lower-case letters (nodes and interfaces are named so)")
        if not 1 <= self.nodes <= 200:
            raise ClusterError(f"{self.nodes} nodes: 1 to 200, as many as a 10.77.x.0/24 has room for")
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
        return [f"{self.name}{i}" for i in range(1, self.nodes + 1)]

    @property
    def subnet(self) -> str:
        """Return the first three bytes of every address."""
        return f"10.77.{zlib.crc32(self.name.encode()) % 256}"

    def address(self, host: str = "") -> str:
        """Return the IPv4 address of a node, of the controller, or by default of this machine."""
        last = {"": 1, self.controller: 2}.get(host) or 10 + int(host.removeprefix(self.name))
        return f"{self.subnet}.{last}"

    def environ(self) -> dict[str, str]:
        """Return the environment of daemons and of commands on hosts: nothing of the caller's leaks in."""
        return {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": os.environ.get("HOME", "/root"),
            "LANG": "C.UTF-8",
            "TERM": os.environ.get("TERM", "dumb"),
            "SLURM_CONF": str(self.slurm_conf),
        }
