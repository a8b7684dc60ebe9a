"""Cluster: a complete Slurm, running or stopped."""

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
from tests.cluster.hosts import Host, list_processes
from tests.cluster.install import unavailable_reason

Completed = subprocess.CompletedProcess[str]


class Cluster:
    """A real Slurm of several hosts on this machine, which is its login node.

    As a context manager it starts on entry, after it has stopped what a killed process left, and stops on exit.

    Args:
        config: The cluster's configuration.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.nodelist = config.nodelist
        self.shared = config.shared
        self.controller = Host(config, config.controller)
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._lock())
            self._up()
            stack.callback(self._down)
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    @classmethod
    def attach(cls, name: str) -> Self:
        """Return a running cluster.

        Args:
            name: The cluster's name.

        Returns:
            The cluster.

        Raises:
            ClusterError: No cluster of this name is running.
        """
        cluster = cls(Config.load(name))
        if not cluster.is_up:
            raise ClusterError(f"cluster {name} is not running\nHINT: python -m tests.cluster up --name {name}")
        return cluster

    @property
    def is_up(self) -> bool:
        """Return whether `up` has completed and the cluster is still running."""
        return self._ready.exists() and self.controller.is_up

    @property
    def environ(self) -> dict[str, str]:
        """Return this process's environment with SLURM_CONF, but without other variables that Slurm reads.

        With banners, the wrappers that print them come first on PATH.
        """
        prefixes = ("SLURM", "SBATCH", "SRUN", "SALLOC", "SQUEUE", "SACCT", "SINFO")
        rest = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
        path = self.config.banner_path + rest.get("PATH", os.defpath)
        return rest | {"SLURM_CONF": str(self.config.slurm_conf), "PATH": path}

    def up(self) -> None:
        """Start the cluster, after removing what a crashed one left; keep the logs if it does not start.

        Raises:
            ClusterError: It is already running, this machine does not support it, or a daemon did not start.
        """
        with self._lock():
            if self.is_up:
                name = self.config.name
                raise ClusterError(
                    f"cluster {name} is already running\nHINT: python -m tests.cluster down --name {name}"
                )
            self._up()

    def down(self) -> None:
        """Stop the cluster, if it is running, and remove all its files."""
        with self._lock():
            self._down()

    def call(self, *argv: str | Path, timeout: float = 60, check: bool = True) -> Completed:
        """Run a command on this machine as a user of the cluster.

        Args:
            *argv: The command.
            timeout: The time limit in seconds.
            check: Whether a failure raises an exception.

        Returns:
            Its output and exit status.
        """
        return _run_command(argv, self.environ, timeout, check)

    def run(self, host: str, *argv: str | Path, timeout: float = 60, check: bool = True) -> Completed:
        """Run a command on a node or on the controller, as root and without Slurm, like `call`."""
        return _run_command([*Host(self.config, host).nsenter_command(), *argv], self.config.environ(), timeout, check)

    def status(self) -> str:
        """Return sinfo's list of the nodes."""
        return self.call("sinfo", "--Node", "--long").stdout

    def wait_idle(self, *nodes: str, seconds: float = 60) -> None:
        """Wait until nodes are idle, by default all nodes that run jobs.

        Args:
            *nodes: The nodes' names.
            seconds: The timeout.
        """
        # Not --states=idle, which also lists idle*: a node that slurmctld has not heard from yet.
        sinfo = ("sinfo", "--noheader", "--Node", "--partition=main", "--format=%t %N")
        nodes = nodes or tuple(self.config.available)
        expected = {f"idle {node}" for node in nodes}

        def idle() -> bool:
            return expected <= set(call(*sinfo, env=self.environ).splitlines())

        wait_for(f"idle nodes {' '.join(nodes)}", idle, seconds, self.config.log / "slurmctld.log")

    def number_jobs_from(self, job_id: int) -> None:
        """Set the id of the next job, unless Slurm has already used a higher one.

        Tests use it to give jobs of two clusters the same id.

        Args:
            job_id: The id.
        """
        text = self.config.slurm_conf.read_text()
        self.config.slurm_conf.write_text(re.sub("(?m)^FirstJobId=.*", f"FirstJobId={job_id}", text))
        self.call("scontrol", "reconfigure")

    def link(self, node: str, change: str) -> None:
        """Change the network link between a node and the switch.

        Args:
            node: The node.
            change: `down`, `up`, a rate for both directions as tc(8) writes it, e.g. `10mbit`, or `norate`.
        """
        controller, pid = self.controller.pid, Host(self.config, node).pid
        if change in {"up", "down"}:
            network.run_ip(f"link set {node} {change}", pid=controller)
        else:
            rate = None if change == "norate" else change
            network.limit_rate(node, controller, rate)
            network.limit_rate("eth0", pid, rate)

    def crash(self, node: str) -> None:
        """Disconnect a node and kill all its processes, as a power cut does."""
        network.disconnect_node(node, self.controller.pid)
        Host(self.config, node).kill()

    def boot(self, node: str) -> None:
        """Start a node; slurmctld notices it later (see `wait_idle`)."""
        host = Host(self.config, node)
        pid = host.start()
        network.connect_node(self.config, node, self.controller.pid, pid)
        host.boot()

    def kill(self, host: str) -> None:
        """Kill a node's slurmd, whose jobs keep running, or the controller's slurmctld.

        slurmctld loses unsaved state: a job that ended in its last seconds may still be listed as running.

        Args:
            host: The node or the controller.
        """
        pid_file = self.config.run / "slurmctld.pid" if host == self.config.controller else "/run/slurmd.pid"
        Host(self.config, host).call("sh", "-c", f"kill -KILL $(cat {pid_file})")

    def start(self, host: str) -> None:
        """Start the daemon that `kill` killed."""
        if host == self.config.controller:
            daemons.start_slurmctld(self.controller)
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
            # Keep the logs: the message names one of them.
            self._stop()
            raise
        except BaseException:
            self._down()
            raise

    def _start(self) -> None:
        start_time = time.monotonic()
        accounting = (daemons.start_mariadb, daemons.start_slurmdbd) if self.config.accounting else ()
        for stage in (
            self._start_network,
            daemons.start_munge,
            *accounting,
            daemons.start_slurmctld,
            self._start_nodes,
        ):
            stage(self.controller)
            name = stage.__name__.lstrip("_").removeprefix("start_")
            line = f"{self.config.name}: {name:10} {time.monotonic() - start_time:5.1f} s"
            print(line, file=sys.stderr, flush=True)
        self._ready.touch()

    def _start_network(self, controller: Host) -> None:
        files.write_state(self.config)
        if self.config.proctrack == "cgroup":
            cgroups.create_group(self.config)
        network.connect_machine(self.config, controller.start())
        files.add_host_entries(self.config)

    def _start_nodes(self, _: Host) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(self.boot, self.nodelist))
        self.wait_idle(*self.nodelist)
        unavailable = self.nodelist[len(self.config.available) :]
        reserved, drained = unavailable[: self.config.reserved], unavailable[self.config.reserved :]
        if drained:
            self.call("scontrol", "update", f"NodeName={','.join(drained)}", "State=DRAIN", "Reason=memory of DIMM 3")
        if reserved:
            options = ("StartTime=now", "Duration=UNLIMITED", "Users=root", f"Nodes={','.join(reserved)}")
            self.call("scontrol", "create", "reservation", "ReservationName=course", *options)

    def _down(self) -> None:
        self._stop()
        files.remove_state(self.config)

    def _stop(self) -> None:
        title = self.controller.title
        for _, argv in list_processes():
            if argv[0].startswith(title.removesuffix(str(self.config.state))) and argv[0] != title:
                raise ClusterError(
                    f"{argv[0]} is running with another HPCRUN_CLUSTER_ROOT\nHINT: choose another --name"
                )
        self.controller.kill()
        cgroups.remove_group(self.config)
        network.disconnect_machine(self.config)
        files.remove_host_entries(self.config)

    @property
    def _ready(self) -> Path:
        return self.config.state / "ready"

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        # An abstract socket leaves no file, and the kernel releases it when the process that holds it ends.
        with socket.socket(socket.AF_UNIX) as lock:
            try:
                lock.bind(f"\0hpcrun-cluster-{self.config.name}")
            except OSError:
                message = f"another process starts, uses or stops cluster {self.config.name}"
                raise ClusterError(f"{message}\nHINT: wait for it, or choose another --name") from None
            yield


def _run_command(argv: Sequence[str | Path], env: dict[str, str], timeout: float, check: bool) -> Completed:
    return subprocess.run(argv, env=env, timeout=timeout, check=check, capture_output=True, text=True)
