"""Runs git commands with a timeout."""

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

TIMEOUT_SECONDS = 1.0
"""Default timeout of a git command."""

_LOCAL_VARIABLES = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_IMPLICIT_WORK_TREE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE"),
    *("GIT_NO_REPLACE_OBJECTS", "GIT_REPLACE_REF_BASE", "GIT_NAMESPACE", "GIT_INTERNAL_SUPER_PREFIX"),
    *("GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT"),
}
"""Variables that select a repository; git hooks set them. The list is that of ``git rev-parse --local-env-vars``."""


_NO_PROGRAMS = ("core.fsmonitor=false", "core.hooksPath=/dev/null")
"""Settings with which git starts no program that the repository's own configuration names."""


class GitError(Exception):
    """A git command that failed or timed out."""


def find_repository(folder: Path) -> Path | None:
    """Return the repository that contains a folder, without starting git; None without one."""
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), None)


def run_git(
    repository: Path,
    *words: str,
    timeout: float = TIMEOUT_SECONDS,
    max_bytes: int | None = None,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> bytes:
    """Run a git command and return its output.

    Args:
        repository: The repository.
        words: The command and its arguments.
        timeout: The timeout, in seconds.
        max_bytes: Stop after this many bytes of output; None for all.
        options: Options of git itself, before the command.
        environment: Variables for git, in addition to this process's own.

    Raises:
        GitError: Git is not installed, fails, or times out.
    """
    settings = ("core.quotePath=off", "log.showSignature=false", *_NO_PROGRAMS)
    # optional locks could block the user's own git commands
    variables = {name: value for name, value in os.environ.items() if name not in _LOCAL_VARIABLES} | {
        "GIT_OPTIONAL_LOCKS": "0"
    }
    command = [
        "git",
        "-C",
        str(repository),
        *(word for setting in settings for word in ("-c", setting)),
        *options,
        *words,
    ]
    started = time.monotonic()
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables | {"LC_ALL": "C"} | dict(environment or {}),
            start_new_session=True,
        )
    except OSError as error:
        raise GitError(f"git: {error.strerror}") from None
    timer = Timer(max(timeout, 0), _kill_group, [process])  # including git's children, which would keep the pipe open
    with process:
        assert process.stdout  # noqa: S101 - for mypy
        assert process.stderr  # noqa: S101
        timer.start()
        answer = process.stdout.read(-1 if max_bytes is None else max_bytes)
        if len(answer) == max_bytes:
            _kill_group(process)
        message = process.stderr.read().decode(errors="replace").strip()
        timer.cancel()
    if process.returncode and len(answer) != max_bytes:
        timed_out = time.monotonic() - started >= timeout
        raise GitError(
            f"git {words[0]} took longer than {timeout:.1f} s" if timed_out else message or f"git {words[0]}"
        )
    return answer


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
