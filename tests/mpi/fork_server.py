"""Runs programs in forks of a process that has imported Keras, which takes longer than many of the programs run.

python fork_server.py SOCKET                     # the server, until its stdin ends
python fork_server.py SOCKET PROGRAM ARGUMENTS   # runs a program in a fork, and ends with it and as it does
"""

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import types
from contextlib import suppress
from pathlib import Path
from typing import Any


def request(path: str, argv: list[str]) -> int:
    """Run a program in a fork, with this process's files, environment and PMI; return its code, or minus its signal."""
    files = [0, 1, 2, *([int(os.environ["PMI_FD"])] if "PMI_FD" in os.environ else [])]
    message = json.dumps({"argv": argv, "cwd": str(Path.cwd()), "environ": dict(os.environ)})
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(path)
        socket.send_fds(server, [message.encode()], files)
        return int(server.recv(16))


def serve(path: str) -> tuple[dict[str, Any], list[int]]:
    """Fork at each request, until stdin ends; return the request and its files in the fork."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        children = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        connection = None
        while connection is None:
            if 0 in readable(listener, 0):
                sys.exit()
            connection, _ = listener.accept()
            if os.fork():
                connection.close()
                connection = None
    signal.signal(signal.SIGCHLD, children)
    with connection:
        message, files, _, _ = socket.recv_fds(connection, 1 << 20, 4)
        if pid := os.fork():
            supervise(pid, connection, files)
    return json.loads(message), files


def readable(*files: Any) -> list[Any]:
    """Wait until files can be read or have ended, and return these."""
    return select.select(files, [], [])[0]


def supervise(pid: int, connection: socket.socket, files: list[int]) -> None:
    """Wait until a fork or the process that asked for it ends; end the fork, and this process."""
    for file in files:
        os.close(file)
    readable(connection, os.pidfd_open(pid))
    os.kill(pid, signal.SIGKILL)  # no effect if it has ended
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with suppress(OSError):
        connection.send(str(code).encode())
    os._exit(0)


def run_program(argv: list[str], cwd: str, environ: dict[str, str], files: list[int]) -> None:
    """Run a program as `python PROGRAM ARGUMENTS` does."""
    os.setsid()  # as mpiexec does
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
        os.close(file)
    if files[3:]:
        os.environ["PMI_FD"] = str(files[3])
    sys.argv[:] = argv
    sys.path[0] = str(Path(argv[0]).parent)
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = argv[0]
    exec(compile(Path(argv[0]).read_bytes(), argv[0], "exec"), vars(main))


if __name__ == "__main__":
    _, path, *argv = sys.argv
    if argv:
        code = request(path, argv)
        if code < 0:
            os.kill(os.getpid(), -code)
        sys.exit(code)
    for module in {os.environ["KERAS_BACKEND"], "keras"}:
        importlib.import_module(module)
    gc.freeze()  # the forks would search these objects again and again
    asked, files = serve(path)
    run_program(**asked, files=files)
