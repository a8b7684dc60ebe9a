"""Hosts made of namespaces: each is one process that sleeps, and all that runs under it dies with it.

The kernel kills every process in a pid namespace when its first one dies, and the nodes' namespaces lie within the
controller's. So ending that one process ends the whole cluster, exactly and at once, whatever the daemons forked and
even where all that had started them was killed before.
"""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.config import Config
from tests.cluster.errors import ClusterError, call, wait_for

PID1 = Path(__file__).with_name("pid1.py")
NODE = Path(__file__).with_name("node.py")
# Of util-linux: nsenter takes the same words for joining that unshare takes for making.
NAMESPACES = ("--net", "--uts", "--ipc", "--pid")


def processes() -> Iterator[tuple[int, list[str]]]:
    """Yield each process of this machine with its arguments."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield int(path.parent.name), path.read_text(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended since


class Host:
    """The controller or a node of one cluster.

    Its first process is found by its title, so there is no pid file that could be stale.

    Args:
        config: The cluster.
        name: The host's name.

    Raises:
        ClusterError: The cluster has no host of that name.
    """

    def __init__(self, config: Config, name: str) -> None:
        hosts = [config.controller, *config.nodelist]
        if name not in hosts:
            raise ClusterError(f"no host {name!r} in cluster {config.name}: it has {', '.join(hosts)}")
        self.config, self.name = config, name
        self.log = config.log / f"{name}.boot.log"

    @property
    def is_controller(self) -> bool:
        """Return whether this is the controller."""
        return self.name == self.config.controller

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Return which namespaces are the host's own: only nodes have mounts of their own."""
        return NAMESPACES if self.is_controller else (*NAMESPACES, "--mount")

    @property
    def title(self) -> str:
        """Return the name under which `ps` shows the first process."""
        return f"hpcrun-cluster:{self.name}:{self.config.state}"

    @property
    def is_up(self) -> bool:
        """Return whether the host's first process is there."""
        return any(argv[0] == self.title for _, argv in processes())

    @property
    def pid(self) -> int:
        """Return the first process's id as this machine counts; a host that is down is a ClusterError."""
        for pid, argv in processes():
            if argv[0] == self.title:
                return pid
        raise ClusterError(f"{self.name} is down")

    def start(self) -> int:
        """Make the namespaces and the first process.

        Returns:
            That process's id as this machine counts.

        Raises:
            ClusterError: It is up already, or it did not start.
        """
        if self.is_up:
            raise ClusterError(f"{self.name} is up already")
        # A session of its own: Ctrl+C in this terminal must not reach the cluster.
        argv = ["setsid", "--fork", "unshare", *self.namespaces, "--fork", "--kill-child"]
        argv += [sys.executable, "-IS", str(PID1), self.name, self.title]
        if not self.is_controller:
            argv = [*Host(self.config, self.config.controller).entering("--pid"), *argv]
        with (
            self.log.open("a") as log,
            subprocess.Popen(
                argv, env=self.config.environ(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            ) as process,
        ):
            # Not read to its end: unshare holds it open for as long as the host lives.
            pid = process.stdout.readline() if process.stdout else b""
        if not pid:
            raise ClusterError(f"{self.name} did not start\nHINT: read {self.log}")
        # Between that line and its title lies an exec.
        wait_for(f"{self.name} is", lambda: self.is_up, 10, self.log)
        return int(pid)

    def entering(self, *namespaces: str) -> list[str]:
        """Return the words that put a command into this host.

        Args:
            *namespaces: Which of the host's namespaces, by default all.

        Returns:
            The words before that command.
        """
        return ["nsenter", f"--target={self.pid}", *(namespaces or self.namespaces), "--"]

    def call(self, *argv: str | Path, env: dict[str, str] | None = None) -> str:
        """Run a command that has to succeed on this host.

        Args:
            *argv: The command.
            env: Variables besides those of `Config.environ`.

        Returns:
            Its standard output.
        """
        try:
            return call(*self.entering(), *argv, env=self.config.environ() | (env or {}))
        except ClusterError as error:
            raise ClusterError(f"{error}\nHINT: read the files in {self.config.log}") from None

    def boot(self) -> None:
        """Start a node's daemons, once its network is there."""
        self.call(sys.executable, "-IS", NODE, self.name, self.config.state, *self.config.shared_paths)

    def kill(self) -> None:
        """End every process of this host, and for the controller of all hosts.

        Raises:
            ClusterError: Some process hangs in the kernel.
        """
        family = {pid: argv[0] == self.title for pid, argv in processes() if self.title in argv}
        # The others, unshare, reap the first process and end; they need a signal only before it has got its title.
        for pid, is_first in sorted(family.items(), key=lambda item: not item[1]):
            if not _end(pid, kill=is_first or not any(family.values())):
                raise ClusterError(f"{self.name} lives 10 s after SIGKILL\nHINT: ps -o pid,stat,wchan,args {pid}")


def _end(pid: int, *, kill: bool) -> bool:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if kill:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        # A pid namespace's first process counts as ended only after all others in it.
        return bool(poll.poll(10_000))
    except ProcessLookupError:
        return True
    finally:
        os.close(fd)
