"""The error of test clusters, and functions that raise it: run a command, wait with a timeout."""

import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.waiting import PATIENCE


class ClusterError(Exception):
    """A cluster operation failed; the message states the reason and which file to read or command to run."""


def call(*argv: str | Path, stdin: str = "", env: Mapping[str, str] | None = None) -> str:
    """Run a command; a failure is an error.

    Args:
        *argv: The command.
        stdin: Text for its standard input.
        env: Its environment; None inherits this process's.

    Returns:
        Its standard output.

    Raises:
        ClusterError: It failed; the message ends with its standard error.
    """
    completed = subprocess.run(argv, input=stdin, env=env, capture_output=True, text=True, check=False)
    if completed.returncode:
        command = " ".join(map(str, argv))
        raise ClusterError(f"`{command}` exited {completed.returncode}: {completed.stderr.strip() or '(no message)'}")
    return completed.stdout


def wait_for(what: str, test: Callable[[], object], seconds: float, log: Path) -> None:
    """Wait until a condition is met.

    Args:
        what: The awaited state, a noun phrase for the error message.
        test: The condition; it is not met while it returns False or raises a ClusterError.
        seconds: The timeout on a quiet machine.
        log: The log file that the error message names.

    Raises:
        ClusterError: The timeout has passed.
    """
    seconds *= PATIENCE
    end = time.monotonic() + seconds
    while True:
        start = time.monotonic()
        try:
            if test() is not False:
                return
            reason = ""
        except ClusterError as error:
            reason = f" ({error})"
        if time.monotonic() > end:
            raise ClusterError(f"timed out after {seconds:g} s waiting for {what}{reason}\nHINT: read {log}")
        time.sleep(max(0.02, time.monotonic() - start))  # an hpcrun command takes a core, and others need it
