"""Asking a program something, with an end to the patience."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcrun.schedulers.environment import clean

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SECONDS = 20.0
"""For an answer: a busy controller takes several, and one that is down may take a minute to be given up."""


_ASKED: set[subprocess.Popen[str]] = set()
"""Programs that have not answered yet."""


@dataclass(frozen=True)
class Answer:
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
    def complaint(self) -> str:
        """What it complained of, in one line."""
        lines = [line.strip() for line in (self.err or self.out).splitlines() if line.strip()]
        return "; ".join(lines[-2:]) or f"exit code {self.code}"


def ask(
    command: Sequence[str],
    *,
    text: str = "",
    seconds: float | None = None,
    folder: Path | None = None,
    conf: str | None = None,
) -> Answer:
    """Run a program to its end, in an environment without what steers Slurm's commands; its children end with it.

    Args:
        command: Its words.
        text: What it reads on stdin.
        seconds: For its answer; `SECONDS` where not given.
        folder: Where it starts; the current directory where not given.
        conf: The slurm.conf of the Slurm that it asks, see `clean`.
    """
    pipe, seconds = subprocess.PIPE, SECONDS if seconds is None else seconds
    try:
        process = subprocess.Popen(
            command, env=clean(conf), cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace",
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return Answer(None, "", f"{command[0]}: {error.strerror}")
    _ASKED.add(process)
    with process:
        try:
            out, err = process.communicate(text, timeout=seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            return Answer(None, "", f"{command[0]} did not answer in {seconds:g} s")
        finally:
            _ASKED.discard(process)
    return Answer(process.returncode, out, err)


def end_all() -> None:
    """End all programs that have not answered yet, with their children: whoever asked them waits no longer."""
    for process in list(_ASKED):
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
