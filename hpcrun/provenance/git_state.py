"""The state of a git repository: commit, branch, and uncommitted changes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from hpcrun.git import TIMEOUT_SECONDS, GitError, run_git

if TYPE_CHECKING:
    from pathlib import Path

MAX_DIFF_BYTES = 5_000_000
"""Maximum length of a recorded diff in bytes; longer diffs are truncated."""

MAX_LISTED_FILES = 1000
"""Maximum number of changed files, and of untracked files, in the record."""

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""The hash of git's empty tree, with which a repository without a commit is compared."""


def read_git_state(repository: Path) -> tuple[dict[str, Any], bytes]:
    """Read the state of a repository, and its diff to the last commit.

    Args:
        repository: The top folder of the repository.

    Returns:
        The state as a dictionary, and the diff, which is empty without changes. The keys are ``repository``, ``commit``
        and ``branch`` (None if there is none), ``changed`` and ``untracked`` files (None if git did not list them), and
        ``notes`` on missing information.
    """
    deadline = time.monotonic() + TIMEOUT_SECONDS
    state: dict[str, Any] = {
        "repository": str(repository), "commit": None, "branch": None, "changed": [], "untracked": [], "notes": [],
    }  # fmt: skip
    diff = b""
    try:
        try:
            status_output = run_git(
                repository, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", timeout=0.7
            )
        except GitError as error:
            state["notes"].append(str(error))
            state["changed"] = state["untracked"] = None
            head = run_git(repository, "rev-parse", "HEAD", "--abbrev-ref", "HEAD", timeout=deadline - time.monotonic())
            state["commit"], state["branch"] = head.decode(errors="surrogateescape").split()
            return state, diff
        _parse_status(status_output, state)
        if state["changed"]:
            diff = _read_diff(repository, state, deadline - time.monotonic())
    except (GitError, ValueError) as error:
        state["notes"].append(str(error))
    for kind in ("changed", "untracked"):
        if (count := len(state[kind] or ())) > MAX_LISTED_FILES:
            state[kind] = state[kind][:MAX_LISTED_FILES]
            state["notes"].append(f"{count} files are {kind}; {MAX_LISTED_FILES} are listed")
    state["notes"] = list(dict.fromkeys(state["notes"]))
    return state, diff


def _read_diff(repository: Path, state: dict[str, Any], timeout: float) -> bytes:
    options = ("--no-color", "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/")
    diff = run_git(
        repository, "diff", *options, state["commit"] or EMPTY_TREE, timeout=timeout, max_bytes=MAX_DIFF_BYTES + 1
    )
    if len(diff) > MAX_DIFF_BYTES:
        state["notes"].append(f"the diff is longer than {MAX_DIFF_BYTES // 10**6} MB; code.diff has its beginning")
    if b"\nBinary files " in diff:
        state["notes"].append("code.diff names changed binary files, but not their content")
    return diff[:MAX_DIFF_BYTES]


def _parse_status(status_output: bytes, state: dict[str, Any]) -> None:
    """Parse the output of ``git status --porcelain=v2 --branch -z`` (git-status(1), Porcelain Format Version 2)."""
    fields = iter(status_output.decode(errors="surrogateescape").split("\0"))
    for field in fields:
        line_type, _, path = field.partition(" ")
        if field.startswith("# branch.oid ") and not field.endswith("(initial)"):
            state["commit"] = field.split()[2]
        elif field.startswith("# branch.head ") and not field.endswith("(detached)"):
            state["branch"] = field.split(maxsplit=2)[2]
        elif line_type == "?":
            state["untracked"].append(path)
        elif line_type in {"1", "2", "u"}:
            state["changed"].append(field.split(" ", {"1": 8, "2": 9, "u": 10}[line_type])[-1])
            if line_type == "2":
                next(fields)  # skip the old name of the renamed file
