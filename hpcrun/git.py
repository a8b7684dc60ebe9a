"""Asking git, which may be slow, absent or of another opinion."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from threading import Timer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SECONDS = 1.0
"""So long git may take where nobody says otherwise."""

_OWN = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_IMPLICIT_WORK_TREE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE"),
    *("GIT_NO_REPLACE_OBJECTS", "GIT_REPLACE_REF_BASE", "GIT_NAMESPACE", "GIT_INTERNAL_SUPER_PREFIX"),
    *("GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT"),
}
"""Set in hooks, for another repository than ours; all that ``git rev-parse --local-env-vars`` lists."""


class GitError(Exception):
    """Git did not answer; the message says why."""


def top(folder: Path) -> Path | None:
    """Return the repository around a folder, found without starting git; None where there is none."""
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), None)


def ask(
    repository: Path,
    *words: str,
    seconds: float = SECONDS,
    most: int | None = None,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> bytes:
    """Return what a git command prints.

    Args:
        repository: The repository.
        words: The command.
        seconds: For the answer.
        most: Bytes of the answer that are wanted; None for all.
        options: Of git itself, before the command.
        environment: Variables for git, besides this process's own.

    Raises:
        GitError: Git is not there, refuses, or takes longer.
    """
    # optional locks would get in the way of what the user does in the repository meanwhile
    whole = {name: value for name, value in os.environ.items() if name not in _OWN} | {"GIT_OPTIONAL_LOCKS": "0"}
    command = [
        "git",
        "-C",
        str(repository),
        "-c",
        "core.quotePath=off",
        "-c",
        "log.showSignature=false",
        *options,
        *words,
    ]
    begin = time.monotonic()
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=whole | {"LC_ALL": "C"} | dict(environment or {}),
            start_new_session=True,
        )
    except OSError as error:
        raise GitError(f"git: {error.strerror}") from None
    timer = Timer(max(seconds, 0), _end, [process])  # git's own children too: they would keep the pipe open
    with process:
        assert process.stdout  # noqa: S101 - for mypy
        assert process.stderr  # noqa: S101
        timer.start()
        answer = process.stdout.read(-1 if most is None else most)
        if len(answer) == most:
            _end(process)
        complaint = process.stderr.read().decode(errors="replace").strip()
        timer.cancel()
    if process.returncode and len(answer) != most:
        slow = time.monotonic() - begin >= seconds
        raise GitError(f"git {words[0]} took longer than {seconds:.1f} s" if slow else complaint or f"git {words[0]}")
    return answer


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
