"""A process that detaches from its job: it forks twice, starts a session, changes its name and writes its pid to FILE.

python orphan.py FILE [ignoring] [bare-child] [open=PATH] [listen=PATH]
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    file, *words = sys.argv[1:]
    if os.fork():
        sys.exit()
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 256)  # otherwise readers of its output would wait for its end
    for _ in range(3):
        os.open(os.devnull, os.O_RDWR)
    ctypes.CDLL(None).prctl(15, b"innocent")  # PR_SET_NAME
    if "ignoring" in words:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pids = [os.getpid()]
    if "bare-child" in words:  # only its parent identifies its job; exec keeps an ignored signal
        pids.append(subprocess.Popen(["sleep", "600"], env={}).pid)
    held: list[object] = [Path(word.removeprefix("open=")).open("a") for word in words if word.startswith("open=")]  # noqa: SIM115
    for word in words:
        if word.startswith("listen="):
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(word.removeprefix("listen="))
            held.append(listening)
    Path(f"{file}.part").write_text(" ".join(map(str, pids)))
    Path(f"{file}.part").replace(file)
    time.sleep(600)
