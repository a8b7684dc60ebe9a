"""A program that hides from its job: forked twice, in a session of its own, under another name, with its pid in FILE.

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
    os.closerange(0, 256)  # else those who wait for its output wait for it
    for _ in range(3):
        os.open(os.devnull, os.O_RDWR)
    ctypes.CDLL(None).prctl(15, b"innocent")  # PR_SET_NAME
    if "ignoring" in words:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pids = [os.getpid()]
    if "bare-child" in words:  # nothing but its parent says whose it is; an ignored signal stays so
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
