"""Asking a program something, with an end to the patience."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcrun.schedulers.environment import command_environment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TIMEOUT_SECONDS = 20.0
"""For an answer: a busy controller takes several, and one that is down may take a minute to be given up."""


_running: set[subprocess.Popen[str]] = set()
"""Programs that have not answered yet."""


@dataclass(frozen=True)
class CommandResult:
    """What a program said.

    Attributes:
        code: Its exit code; None where it could not be started, or did not end in time.
        out: What it wrote on stdout.
        err: What it wrote on stderr, or why there is no answer.
    """

    code: int | None
    out: str
    err: str

    @property
    def error_message(self) -> str:
        """What it complained of, in one line."""
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
    """Run a program to its end, in an environment without what steers Slurm's commands; its children end with it.

    Args:
        command: Its words.
        text: What it reads on stdin.
        timeout: For its answer; `TIMEOUT_SECONDS` where not given.
        folder: Where it starts; the current directory where not given.
        conf: The slurm.conf of the Slurm that it asks, see `command_environment`.
    """
    pipe, timeout = subprocess.PIPE, TIMEOUT_SECONDS if timeout is None else timeout
    try:
        process = subprocess.Popen(
            command, env=command_environment(conf), cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe,
            text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return CommandResult(None, "", f"{command[0]}: {error.strerror}")
    _running.add(process)
    with process:
        try:
            out, err = process.communicate(text, timeout=timeout)
        except subprocess.TimeoutExpired:
            _end(process)
            return CommandResult(None, "", f"{command[0]} did not answer in {timeout:g} s")
        finally:
            _running.discard(process)
    return CommandResult(process.returncode, out, err)


def kill_running_commands() -> None:
    """End all programs that have not answered yet, with their children: whoever asked them waits no longer."""
    for process in list(_running):
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
