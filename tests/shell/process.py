"""bash, started as launchers and schedulers start it."""

import os
import subprocess
import sys
from contextlib import contextmanager

from tests.waiting import DEADLINE

BASH = os.environ.get("HPCRUN_TEST_BASH", "bash")  # an older one: CentOS 7 has 4.2, RHEL 8 has 4.4


@contextmanager
def bash(*argv, environ, without, **streams):
    """Start bash in a process group of its own; kill it at the end.

    Args:
        argv: A script and its arguments.
        environ: Variables that it gets.
        without: Prefixes of variables of this process that it does not inherit.
        streams: Streams as `subprocess.Popen` takes them.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(without)}
    with subprocess.Popen(
        ["env", "--default-signal", BASH, *map(str, argv)],  # the tests may run by nohup
        env=inherited | {name: str(value) for name, value in environ.items()},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **streams,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


_COUNT_ORPHANS = """
import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans become children of this process
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
orphans = 0
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
    orphans += 1
print(code, orphans)
"""


def count_orphans(*argv, environ):
    """Run bash to its end; return its exit code, and the number of its processes that were left then.

    Args:
        argv: A script and its arguments.
        environ: Variables in addition to those of this process.
    """
    command = [sys.executable, "-c", _COUNT_ORPHANS, BASH, *map(str, argv)]
    environ = os.environ | {name: str(value) for name, value in environ.items()}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=DEADLINE)
    return tuple(map(int, done.stdout.split()))
