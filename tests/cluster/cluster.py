"""Cluster: a whole Slurm, up or down."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from tests.cluster import cgroups, daemons, files, network
from tests.cluster.config import Config
from tests.cluster.errors import ClusterError, call, wait_for
from tests.cluster.hosts import Host, processes
from tests.cluster.install import unavailable_reason

Completed = subprocess.CompletedProcess[str]


class Cluster:
    """A real Slurm of several hosts on this machine, which is its login node.

    As a context manager it is up inside and gone outside, and takes down first what a killed process has left.

    Args:
        config: What it is made of.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.nodelist = config.nodelist
        self.shared = config.shared
        self.controller = Host(config, config.controller)
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._alone())
            self._up()
            stack.callback(self._down)
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    @classmethod
    def attach(cls, name: str) -> Self:
        """Return a cluster that is up.

        Args:
            name: The cluster's name.

        Returns:
            The cluster.

        Raises:
            ClusterError: There is none of that name.
        """
        cluster = cls(Config.load(name))
        if not cluster.is_up:
            raise ClusterError(f"cluster {name} is not up\nHINT: python -m tests.cluster up --name {name}")
        return cluster

    @property
    def is_up(self) -> bool:
        """Return whether `up` has come to its end and the cluster still lives."""
        return self._ready.exists() and self.controller.is_up

    @property
    def environ(self) -> dict[str, str]:
        """Return this process's environment, with SLURM_CONF in place of all else that steers Slurm.

        With banners, the commands that print them come first on PATH.
        """
        steering = ("SLURM", "SBATCH", "SRUN", "SALLOC", "SQUEUE", "SACCT", "SINFO")
        rest = {name: value for name, value in os.environ.items() if not name.startswith(steering)}
        path = self.config.banner_path + rest.get("PATH", os.defpath)
        return rest | {"SLURM_CONF": str(self.config.slurm_conf), "PATH": path}

    def up(self) -> None:
        """Start it, after removing what a crashed one left; logs stay where it does not start.

        Raises:
            ClusterError: It is up already, cannot run here, or a daemon did not start.
        """
        with self._alone():
            if self.is_up:
                name = self.config.name
                raise ClusterError(f"cluster {name} is up\nHINT: python -m tests.cluster down --name {name}")
            self._up()

    def down(self) -> None:
        """End it and remove every trace; with nothing there, nothing happens."""
        with self._alone():
            self._down()

    def call(self, *argv: str | Path, timeout: float = 60, check: bool = True) -> Completed:
        """Run a command on this machine as a user of the cluster.

        Args:
            *argv: The command.
            timeout: Seconds that it may take.
            check: Whether it has to succeed.

        Returns:
            What it printed, and its exit status.
        """
        return _run(argv, self.environ, timeout, check)

    def run(self, host: str, *argv: str | Path, timeout: float = 60, check: bool = True) -> Completed:
        """Run a command on a node or on the controller, as root and without Slurm; otherwise as `call`."""
        return _run([*Host(self.config, host).entering(), *argv], self.config.environ(), timeout, check)

    def status(self) -> str:
        """Return what sinfo says of the nodes."""
        return self.call("sinfo", "--Node", "--long").stdout

    def wait_idle(self, *nodes: str, seconds: float = 60) -> None:
        """Wait for nodes to be idle, by default for all that run jobs.

        Args:
            *nodes: Their names.
            seconds: The deadline.
        """
        # Not --states=idle, which also lists idle*: a node that slurmctld has not heard from yet.
        sinfo = ("sinfo", "--noheader", "--Node", "--partition=main", "--format=%t %N")
        nodes = nodes or tuple(self.config.available)
        wanted = {f"idle {node}" for node in nodes}

        def idle() -> bool:
            return wanted <= set(call(*sinfo, env=self.environ).splitlines())

        wait_for(f"nodes {' '.join(nodes)} are", idle, seconds, self.config.log / "slurmctld.log")

    def number_jobs_from(self, job_id: int) -> None:
        """Let the next job have this id, unless a later one has been given: so two clusters get equal ids.

        Args:
            job_id: The id.
        """
        text = self.config.slurm_conf.read_text()
        self.config.slurm_conf.write_text(re.sub("(?m)^FirstJobId=.*", f"FirstJobId={job_id}", text))
        self.call("scontrol", "reconfigure")

    def link(self, node: str, change: str) -> None:
        """Change the cable between a node and the switch.

        Args:
            node: The node.
            change: `down`, `up`, a rate for both directions as tc(8) writes it, e.g. `10mbit`, or `norate`.
        """
        controller, pid = self.controller.pid, Host(self.config, node).pid
        if change in {"up", "down"}:
            network.ip(f"link set {node} {change}", pid=controller)
        else:
            rate = None if change == "norate" else change
            network.limit(node, controller, rate)
            network.limit("eth0", pid, rate)

    def crash(self, node: str) -> None:
        """Pull a node's cable and end all its processes, as a power cut does: nobody hears of their end."""
        network.disconnect_node(node, self.controller.pid)
        Host(self.config, node).kill()

    def boot(self, node: str) -> None:
        """Start a node; slurmctld sees it some time later, which `wait_idle` waits for."""
        host = Host(self.config, node)
        pid = host.start()
        network.connect_node(self.config, node, self.controller.pid, pid)
        host.boot()

    def kill(self, host: str) -> None:
        """Kill a node's slurmd, whose jobs live on, or the controller's slurmctld.

        What slurmctld has not written down yet is lost: a job that ended in its last seconds may run on in its books.

        Args:
            host: The node or the controller.
        """
        pid_file = self.config.run / "slurmctld.pid" if host == self.config.controller else "/run/slurmd.pid"
        Host(self.config, host).call("sh", "-c", f"kill -KILL $(cat {pid_file})")

    def start(self, host: str) -> None:
        """Start what `kill` killed."""
        if host == self.config.controller:
            daemons.slurmctld(self.controller)
        else:
            Host(self.config, host).call("slurmd", "-N", host)

    def _up(self) -> None:
        if reason := unavailable_reason(self.config):
            raise ClusterError(reason)
        self._down()
        network.check_free(self.config)
        try:
            self._start()
        except ClusterError:
            # Its logs stay: the message names one of them.
            self._stop()
            raise
        except BaseException:
            self._down()
            raise

    def _start(self) -> None:
        began = time.monotonic()
        accounting = (daemons.mariadb, daemons.slurmdbd) if self.config.accounting else ()
        for stage in (self._network, daemons.munge, *accounting, daemons.slurmctld, self._nodes):
            stage(self.controller)
            line = f"{self.config.name}: {stage.__name__.lstrip('_'):10} {time.monotonic() - began:5.1f} s"
            print(line, file=sys.stderr, flush=True)
        self._ready.touch()

    def _network(self, controller: Host) -> None:
        files.write(self.config)
        if self.config.proctrack == "cgroup":
            cgroups.make(self.config)
        network.connect_machine(self.config, controller.start())
        files.announce(self.config)

    def _nodes(self, _: Host) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(self.boot, self.nodelist))
        self.wait_idle(*self.nodelist)
        lost = self.nodelist[len(self.config.available) :]
        reserved, drained = lost[: self.config.reserved], lost[self.config.reserved :]
        if drained:
            self.call("scontrol", "update", f"NodeName={','.join(drained)}", "State=DRAIN", "Reason=memory of DIMM 3")
        if reserved:
            when = ("StartTime=now", "Duration=UNLIMITED", "Users=root", f"Nodes={','.join(reserved)}")
            self.call("scontrol", "create", "reservation", "ReservationName=course", *when)

    def _down(self) -> None:
        self._stop()
        files.remove(self.config)

    def _stop(self) -> None:
        ours = self.controller.title
        for _, argv in processes():
            if argv[0].startswith(ours.removesuffix(str(self.config.state))) and argv[0] != ours:
                raise ClusterError(f"{argv[0]} is up, of another HPCRUN_CLUSTER_ROOT\nHINT: choose another --name")
        self.controller.kill()
        cgroups.remove(self.config)
        network.disconnect_machine(self.config)
        files.retract(self.config)

    @property
    def _ready(self) -> Path:
        return self.config.state / "ready"

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        # An abstract socket is a lock that leaves no file, and that the kernel frees when its holder dies.
        with socket.socket(socket.AF_UNIX) as lock:
            try:
                lock.bind(f"\0hpcrun-cluster-{self.config.name}")
            except OSError:
                message = f"another process starts, tests or ends cluster {self.config.name}"
                raise ClusterError(f"{message}\nHINT: wait for it, or choose another --name") from None
            yield


def _run(argv: Sequence[str | Path], env: dict[str, str], timeout: float, check: bool) -> Completed:
    return subprocess.run(argv, env=env, timeout=timeout, check=check, capture_output=True, text=True)
