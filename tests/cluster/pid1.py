"""The first process of a host: sets the host name, then sleeps while the kernel reaps orphaned processes.

It runs by path, before the host has private mounts.
"""

import os
import signal
import socket
import sys
from pathlib import Path

if __name__ == "__main__":
    name, title = sys.argv[1:]
    socket.sethostname(name)
    # /proc is still the machine's, so this is the process id in the machine's pid namespace.
    print(Path("/proc/self").readlink(), flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    # exec keeps an ignored SIGCHLD, so the kernel reaps children without leaving zombies.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.execvp("sleep", [title, "infinity"])
