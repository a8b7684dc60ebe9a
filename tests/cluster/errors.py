"""What goes wrong while a cluster is built, and the two ways of running a command that notice it."""

import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path


class ClusterError(Exception):
    """The cluster cannot do what was asked; the message says why and what to read or type."""


def call(*argv: str | Path, stdin: str = "", env: Mapping[str, str] | None = None) -> str:
    """Run a command that has to succeed.

    Args:
        *argv: The command.
        stdin: Text for its standard input.
        env: Its environment; None inherits this process's.

    Returns:
        Its standard output.

    Raises:
        ClusterError: It failed; the message ends with its standard error.
    """
    done = subprocess.run(argv, input=stdin, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        command = " ".join(map(str, argv))
        raise ClusterError(f"`{command}` exited {done.returncode}: {done.stderr.strip() or '(no message)'}")
    return done.stdout


def wait_for(what: str, test: Callable[[], object], seconds: float, log: Path) -> None:
    """Ask until the answer is yes.

    Args:
        what: What is waited for, as the subject of a sentence.
        test: The question; False and a ClusterError count as no.
        seconds: The deadline.
        log: The file that tells more.

    Raises:
        ClusterError: The deadline has passed.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            if test() is not False:
                return
            reason = ""
        except ClusterError as error:
            reason = f" ({error})"
        if time.monotonic() > end:
            raise ClusterError(f"{what} not ready after {seconds:g} s{reason}\nHINT: read {log}")
        time.sleep(0.02)
