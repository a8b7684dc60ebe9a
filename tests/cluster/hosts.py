"""Hosts made of Linux namespaces; the first process of each host sleeps.

The kernel kills all processes in a pid namespace when its first process ends, and the nodes' namespaces are inside the
controller's. So killing the controller's first process stops the whole cluster at once, whatever the daemons forked.
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
# unshare creates and nsenter joins a namespace by the same options.
NAMESPACES = ("--net", "--uts", "--ipc", "--pid")


def list_processes() -> Iterator[tuple[int, list[str]]]:
    """Yield each process of this machine with its arguments."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield int(path.parent.name), path.read_text(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue  # the process has ended meanwhile


class Host:
    """The controller or a node of one cluster.

    It finds its first process by title, because a pid file could be stale.

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
        """Return whether this host is the controller."""
        return self.name == self.config.controller

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Return the host's namespaces; only nodes have a mount namespace."""
        return NAMESPACES if self.is_controller else (*NAMESPACES, "--mount")

    @property
    def title(self) -> str:
        """Return the name of the first process in `ps`."""
        return f"hpcrun-cluster:{self.name}:{self.config.state}"

    @property
    def is_up(self) -> bool:
        """Return whether the host's first process runs."""
        return any(argv[0] == self.title for _, argv in list_processes())

    @property
    def pid(self) -> int:
        """Return the first process's id in this machine's pid namespace; a host that is down is an error."""
        for pid, argv in list_processes():
            if argv[0] == self.title:
                return pid
        raise ClusterError(f"{self.name} is down")

    def start(self) -> int:
        """Create the namespaces and start the first process.

        Returns:
            The process id in this machine's pid namespace.

        Raises:
            ClusterError: The host is already running, or it did not start.
        """
        if self.is_up:
            raise ClusterError(f"{self.name} is already running")
        # Start a new session, so that Ctrl+C in this terminal does not reach the cluster.
        argv = ["setsid", "--fork", "unshare", *self.namespaces, "--fork", "--kill-child"]
        argv += [sys.executable, "-IS", str(PID1), self.name, self.title]
        if not self.is_controller:
            argv = [*Host(self.config, self.config.controller).nsenter_command("--pid"), *argv]
        with (
            self.log.open("a") as log,
            subprocess.Popen(
                argv, env=self.config.environ(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            ) as process,
        ):
            # Read one line only: unshare keeps the pipe open while the host runs.
            pid = process.stdout.readline() if process.stdout else b""
        if not pid:
            raise ClusterError(f"{self.name} did not start\nHINT: read {self.log}")
        # The process prints the line before the exec that sets its title.
        wait_for(f"the start of {self.name}", lambda: self.is_up, 10, self.log)
        return int(pid)

    def nsenter_command(self, *namespaces: str) -> list[str]:
        """Return the nsenter command that runs a program on this host.

        Args:
            *namespaces: The namespaces to enter, by default all of the host's.

        Returns:
            The command, to which the program's arguments are appended.
        """
        return ["nsenter", f"--target={self.pid}", *(namespaces or self.namespaces), "--"]

    def call(self, *argv: str | Path, env: dict[str, str] | None = None) -> str:
        """Run a command on this host; a failure is an error.

        Args:
            *argv: The command.
            env: Variables in addition to `Config.environ`.

        Returns:
            Its standard output.
        """
        try:
            return call(*self.nsenter_command(), *argv, env=self.config.environ() | (env or {}))
        except ClusterError as error:
            raise ClusterError(f"{error}\nHINT: read the files in {self.config.log}") from None

    def boot(self) -> None:
        """Start a node's daemons; its network must exist."""
        self.call(sys.executable, "-IS", NODE, self.name, self.config.state, *self.config.shared_paths)

    def kill(self) -> None:
        """Kill all processes of this host; for the controller, those of all hosts.

        Raises:
            ClusterError: A process did not end within 10 s after SIGKILL.
        """
        found = {pid: argv[0] == self.title for pid, argv in list_processes() if self.title in argv}
        # unshare ends with the first process; it needs a signal only before the first process has set its title.
        for pid, is_first in sorted(found.items(), key=lambda item: not item[1]):
            if not _wait_until_ended(pid, kill=is_first or not any(found.values())):
                raise ClusterError(f"{self.name} still runs 10 s after SIGKILL\nHINT: ps -o pid,stat,wchan,args {pid}")


def _wait_until_ended(pid: int, *, kill: bool) -> bool:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if kill:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        # The first process of a pid namespace ends only after all others in it.
        return bool(poll.poll(10_000))
    except ProcessLookupError:
        return True
    finally:
        os.close(fd)
