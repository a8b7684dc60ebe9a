"""The first process of a host: names the host, then sleeps and lets the kernel reap what it inherits.

Run by path, before the host has mounts of its own.
"""

import os
import signal
import socket
import sys
from pathlib import Path

if __name__ == "__main__":
    name, title = sys.argv[1:]
    socket.sethostname(name)
    # /proc is still the machine's here, so this is the id that the machine knows the process by.
    print(Path("/proc/self").readlink(), flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    # An ignored SIGCHLD stays ignored over exec, and its zombies never come to be.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.execvp("sleep", [title, "infinity"])
