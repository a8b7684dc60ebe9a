"""Commands with a timeout."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

from hpcrun.frozen import frozen
from hpcrun.schedulers.environment import command_environment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TIMEOUT_SECONDS = 20.0
"""Default timeout in seconds: a busy slurmctld takes several seconds; Slurm's commands retry for a minute."""


_running_commands: set[subprocess.Popen[str]] = set()
"""Commands that have not exited yet."""


@frozen
class CommandResult:
    """The exit code and output of a command.

    Attributes:
        code: The exit code; None if the command did not start, or did not exit within the timeout.
        out: The text on stdout.
        err: The text on stderr, or the reason why there is no exit code.
    """

    code: int | None
    out: str
    err: str

    @property
    def text(self) -> str:
        """The text on stdout; empty if the command failed."""
        return self.out if self.code == 0 else ""

    @property
    def combined_output(self) -> str:
        """The text on stdout and stderr, because some programs print results to stderr; empty if the command failed."""
        return f"{self.out}\n{self.err}" if self.code == 0 else ""

    @property
    def failure(self) -> str:
        """The error message if the command failed; empty if it succeeded."""
        return "" if self.code == 0 else self.error_message

    @property
    def error_message(self) -> str:
        """The last two lines of the error output, joined by ``; ``."""
        lines = [line.strip() for line in (self.err or self.out).splitlines() if line.strip()]
        return "; ".join(lines[-2:]) or f"exit code {self.code}"


def run(
    command: Sequence[str],
    *,
    text: str = "",
    timeout: float | None = None,
    folder: Path | None = None,
    conf: str | None = None,
) -> CommandResult:
    """Run a command without environment variables that hold Slurm options; after the timeout, kill it and its children.

    Args:
        command: The program and its arguments.
        text: The text on stdin.
        timeout: Timeout in seconds; default: `TIMEOUT_SECONDS`.
        folder: The working directory of the command; default: the current directory.
        conf: The slurm.conf of the Slurm cluster to query; see `command_environment`.
    """
    pipe, timeout = subprocess.PIPE, TIMEOUT_SECONDS if timeout is None else timeout
    try:
        process = subprocess.Popen(
            command, env=command_environment(conf), cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe,
            text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError:
        return CommandResult(None, "", f"{command[0]} is not installed")
    except OSError as error:
        return CommandResult(None, "", f"{command[0]}: {error.strerror}")
    _running_commands.add(process)
    with process:
        try:
            out, err = process.communicate(text, timeout=timeout)
        except subprocess.TimeoutExpired:
            _kill(process)
            return CommandResult(None, "", f"{command[0]} did not answer within {timeout:g} s")
        except BaseException:  # Ctrl+C sends SIGINT to this process, not to the command
            _kill(process)
            process.wait()
            raise
        finally:
            _running_commands.discard(process)
    return CommandResult(process.returncode, out, err)


def kill_running_commands() -> None:
    """Kill all running commands and their children, so that threads that wait for them continue."""
    for process in list(_running_commands):
        _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
