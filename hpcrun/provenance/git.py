"""What git says of a folder: commit, branch, and what is not committed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from hpcrun.git import SECONDS, GitError, ask

if TYPE_CHECKING:
    from pathlib import Path

DIFF_BYTES = 5_000_000
"""Of a longer diff, only the beginning is kept."""

MOST_FILES = 1000
"""So many files are listed of each kind."""

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""What a repository without a commit differs from."""


def state(repository: Path) -> tuple[dict[str, Any], bytes]:
    """Return the state of a repository, and the diff to its last commit.

    Args:
        repository: Its top folder.

    Returns:
        ``repository``, ``commit`` and ``branch`` (None where there is none), ``changed`` and ``untracked`` files (None
        where git did not tell them), and ``notes`` on what is not complete; then the diff, empty where nothing has
        changed.
    """
    deadline = time.monotonic() + SECONDS
    facts: dict[str, Any] = {
        "repository": str(repository), "commit": None, "branch": None, "changed": [], "untracked": [], "notes": [],
    }  # fmt: skip
    diff = b""
    try:
        try:
            status = ask(
                repository, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", seconds=0.7
            )
        except GitError as error:
            facts["notes"].append(str(error))
            facts["changed"] = facts["untracked"] = None
            commit = ask(repository, "rev-parse", "HEAD", "--abbrev-ref", "HEAD", seconds=deadline - time.monotonic())
            facts["commit"], facts["branch"] = commit.decode(errors="surrogateescape").split()
            return facts, diff
        _read(status, facts)
        if facts["changed"]:
            diff = _diff(repository, facts, deadline - time.monotonic())
    except (GitError, ValueError) as error:
        facts["notes"].append(str(error))
    for kind in ("changed", "untracked"):
        if (many := len(facts[kind] or ())) > MOST_FILES:
            facts[kind] = facts[kind][:MOST_FILES]
            facts["notes"].append(f"{many} files are {kind}; {MOST_FILES} are listed")
    facts["notes"] = list(dict.fromkeys(facts["notes"]))
    return facts, diff


def _diff(repository: Path, facts: dict[str, Any], seconds: float) -> bytes:
    plain = ("--no-color", "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/")
    diff = ask(repository, "diff", *plain, facts["commit"] or EMPTY_TREE, seconds=seconds, most=DIFF_BYTES + 1)
    if len(diff) > DIFF_BYTES:
        facts["notes"].append(f"the diff is longer than {DIFF_BYTES // 10**6} MB; code.diff has its beginning")
    if b"\nBinary files " in diff:
        facts["notes"].append("changes of binary files are named in code.diff, and not kept")
    return diff[:DIFF_BYTES]


def _read(status: bytes, facts: dict[str, Any]) -> None:
    """Note what ``git status --porcelain=v2 --branch -z`` says (git-status(1), Porcelain Format Version 2)."""
    fields = iter(status.decode(errors="surrogateescape").split("\0"))
    for field in fields:
        kind, _, rest = field.partition(" ")
        if field.startswith("# branch.oid ") and not field.endswith("(initial)"):
            facts["commit"] = field.split()[2]
        elif field.startswith("# branch.head ") and not field.endswith("(detached)"):
            facts["branch"] = field.split(maxsplit=2)[2]
        elif kind == "?":
            facts["untracked"].append(rest)
        elif kind in {"1", "2", "u"}:
            facts["changed"].append(field.split(" ", {"1": 8, "2": 9, "u": 10}[kind])[-1])
            if kind == "2":
                next(fields)  # the name before the renaming
