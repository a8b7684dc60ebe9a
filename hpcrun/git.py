"""Git commands with a timeout."""

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
"""Default timeout of a git command in seconds."""

_LOCAL_VARIABLES = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_IMPLICIT_WORK_TREE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE"),
    *("GIT_NO_REPLACE_OBJECTS", "GIT_REPLACE_REF_BASE", "GIT_NAMESPACE", "GIT_INTERNAL_SUPER_PREFIX"),
    *("GIT_CONFIG", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT"),
}
"""Environment variables that select a repository, as listed by ``git rev-parse --local-env-vars``."""


_NO_PROGRAMS = ("core.fsmonitor=false", "core.hooksPath=/dev/null")
"""Settings that keep git from starting programs that the repository's configuration names."""

_NO_FETCH = {"GIT_ALLOW_PROTOCOL": ""}
"""Variable that keeps git from fetching missing objects of a partial clone with programs of its configuration."""

_COMPARING_COMMANDS = {
    "status": ("--ignore-submodules=dirty",),
    "diff": ("--ignore-submodules=dirty", "--submodule=short"),
}
"""Commands that compare the work tree, and options that keep git from running in submodules."""


class GitError(Exception):
    """A git command that failed or timed out."""


def find_repository(folder: Path) -> Path | None:
    """Return the repository that contains a folder; None if there is none. Git is not started."""
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), None)


def run_git(
    repository: Path,
    *arguments: str,
    timeout: float = TIMEOUT_SECONDS,
    max_bytes: int | None = None,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> bytes:
    """Run a git command and return its output.

    Args:
        repository: The repository.
        arguments: The git command and its arguments.
        timeout: Timeout in seconds.
        max_bytes: Maximum number of bytes of output, after which git is stopped; None for no limit.
        options: Options of git, before the name of the git command.
        environment: Variables for git, in addition to those of this process.

    Raises:
        GitError: Git is not installed, fails, or times out.
    """
    settings: tuple[str, ...] = ("core.quotePath=off", "log.showSignature=false", *_NO_PROGRAMS)
    if arguments[0] in _COMPARING_COMMANDS:
        start_time = time.monotonic()
        settings += _disable_filters(repository, timeout)
        timeout -= time.monotonic() - start_time
        arguments = (arguments[0], *_COMPARING_COMMANDS[arguments[0]], *arguments[1:])
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
        *arguments,
    ]
    start_time = time.monotonic()
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables | _NO_FETCH | {"LC_ALL": "C"} | dict(environment or {}),
            start_new_session=True,
        )
    except OSError as error:
        raise GitError(f"git: {error.strerror}") from None
    timer = Timer(max(timeout, 0), _kill_group, [process])  # kill git's children, too: they would keep the pipe open
    with process:
        assert process.stdout  # noqa: S101 - for mypy
        assert process.stderr  # noqa: S101
        timer.start()
        output = process.stdout.read(-1 if max_bytes is None else max_bytes)
        if len(output) == max_bytes:
            _kill_group(process)
        message = process.stderr.read().decode(errors="replace").strip()
        timer.cancel()
    if process.returncode and len(output) != max_bytes:
        has_timed_out = time.monotonic() - start_time >= timeout
        raise GitError(
            f"git {arguments[0]} took longer than {timeout:.1f} s"
            if has_timed_out
            else message or f"git {arguments[0]}"
        )
    return output


def _disable_filters(repository: Path, timeout: float) -> tuple[str, ...]:
    """Return settings that disable the filter programs that a repository's configuration defines.

    Raises:
        GitError: A filter cannot be disabled, or git fails or times out.
    """
    settings = _filter_settings(repository, timeout)
    # filters from the user's own git configuration are trusted
    settings -= _filter_settings(Path("/"), timeout) if settings else set()
    drivers = {setting.partition("\n")[0].rpartition(".")[0] for setting in settings}
    if invalid_driver := next(
        (driver for driver in drivers if "=" in driver), None
    ):  # git's option -c cannot set a name that contains =
        raise GitError(f"{invalid_driver} in the repository's configuration cannot be disabled")
    empty_settings = (
        f"{driver}.{program}=" for driver in sorted(drivers) for program in ("clean", "smudge", "process")
    )
    return (*empty_settings, *(f"{driver}.required=false" for driver in sorted(drivers)))


def _filter_settings(folder: Path, timeout: float) -> set[str]:
    """Return the filter settings that apply in a folder, each as name, newline and value."""
    try:
        output = run_git(folder, "config", "-z", "--includes", "--get-regexp", r"^filter\.", timeout=timeout)
    except GitError as error:
        if str(error) == "git config":  # git config exits with 1 and no message if there is no such setting
            return set()
        raise
    return set(output.decode(errors="surrogateescape").split("\0")) - {""}


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
