"""Runs git commands with a timeout."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
"""Settings with which git starts no program that the repository's own configuration names; see `_disable_filters`."""

_NO_PROTOCOLS = {"GIT_ALLOW_PROTOCOL": ""}
"""Keeps git from fetching what a partial clone lacks, by the programs that its configuration names."""

_COMPARING = {
    "status": ("--ignore-submodules=dirty",),
    "diff": ("--ignore-submodules=dirty", "--submodule=short"),
}
"""Commands that compare the work tree, and options with which they do not run in submodules, by their configuration."""


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
    settings: tuple[str, ...] = ("core.quotePath=off", "log.showSignature=false", *_NO_PROGRAMS)
    if words[0] in _COMPARING:
        started = time.monotonic()
        settings += _disable_filters(repository, timeout)
        timeout -= time.monotonic() - started
        words = (words[0], *_COMPARING[words[0]], *words[1:])
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
            env=variables | _NO_PROTOCOLS | {"LC_ALL": "C"} | dict(environment or {}),
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


def _disable_filters(repository: Path, timeout: float) -> tuple[str, ...]:
    """Return settings that disable a repository's filter programs, except those of the user's own configuration.

    Raises:
        GitError: One of them cannot be disabled, or git fails or times out.
    """
    anywhere, own = (_filter_settings(folder, timeout) for folder in (repository, Path("/")))
    drivers = {setting.partition("\n")[0].rpartition(".")[0] for setting in anywhere - own}
    if strange := next((driver for driver in drivers if "=" in driver), None):  # "-c" would end the name there
        raise GitError(f"{strange} in the repository's configuration cannot be disabled")
    empty = (f"{driver}.{program}=" for driver in sorted(drivers) for program in ("clean", "smudge", "process"))
    return (*empty, *(f"{driver}.required=false" for driver in sorted(drivers)))


def _filter_settings(folder: Path, timeout: float) -> set[str]:
    """Return the settings of filters that apply in a folder, each a name, a newline and a value."""
    try:
        found = run_git(folder, "config", "-z", "--includes", "--get-regexp", r"^filter\.", timeout=timeout)
    except GitError as error:
        if str(error) == "git config":  # it found none
            return set()
        raise
    return set(found.decode(errors="surrogateescape").split("\0")) - {""}


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
