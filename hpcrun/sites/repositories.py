"""Copies of git repositories of site files: fetched as data, so that nothing of them ever runs.

No work tree is checked out: the files are read from git's objects, so that hooks, filters and submodules have no part.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.errors import HpcrunError, closest_match
from hpcrun.git import GitError, run_git

if TYPE_CHECKING:
    from collections.abc import Iterator

FETCH_TIMEOUT_SECONDS = 60.0
"""So long a fetch may take."""

MAX_FILE_BYTES = 1_000_000
"""A longer file is no site file, and no template."""

_URL = re.compile(r"(https|ssh|file)://[^\s]+|[A-Za-z0-9_][A-Za-z0-9_.-]*@[A-Za-z0-9][A-Za-z0-9.-]*:[^\s:-][^\s]*")
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+/-]*")
_SAFE = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "https:ssh:file"}
_KEPT = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "gc.auto=0", "maintenance.auto=false")
_OPTIONS = ("--git-dir=.", *(word for setting in _KEPT for word in ("-c", setting)))


@dataclass(frozen=True)
class Version:
    """A commit of a repository.

    Attributes:
        commit: Its full hash.
        date: The day it was made.
        tag: The tag that is followed, else one that it has; None where it has none.
    """

    commit: str
    date: str
    tag: str | None = None

    @property
    def short(self) -> str:
        """The first 12 digits of the commit: the name of its folder."""
        return self.commit[:12]

    def __str__(self) -> str:
        return f"{self.tag} ({self.commit[:8]}, {self.date})" if self.tag else f"{self.commit[:8]} ({self.date})"


def is_repository_url(source: str) -> bool:
    """Return whether a source is a git repository's address rather than a folder.

    Raises:
        HpcrunError: It is an address that git must not be given.
    """
    if _URL.fullmatch(source) and source.isprintable() and "://-" not in source:
        if re.match(r"[a-z]+://[^/@]*:[^/@]*@", source):
            raise HpcrunError(
                "a password stands in the address, where everybody would see it",
                hint="leave it out: git asks its credential helper (git help credentials)",
            )
        return True
    if source.startswith("-") or "::" in source or "://" in source or not source.isprintable():
        raise HpcrunError(
            f"{source!r} is no address of a repository that site files are taken from",
            hint="https://HOST/PATH, ssh://HOST/PATH, user@HOST:PATH, file:///PATH, or a folder",
        )
    return False


def require_ref_name(ref: str) -> None:
    """Refuse what is no name of a branch, tag or commit.

    Raises:
        HpcrunError: It is none.
    """
    if not _REF.fullmatch(ref) or ".." in ref:
        raise HpcrunError(f"--ref={ref}: no name of a branch, tag or commit", hint="such as --ref v1.2, or --ref main")


def fetch(url: str, repository: Path) -> None:
    """Fetch all branches and tags of a repository into a new bare one.

    Args:
        url: Its address, as `is_repository_url` lets through.
        repository: The folder to be made.

    Raises:
        HpcrunError: It cannot be reached, or needs a password that nobody has stored.
    """
    repository.mkdir()
    words = ["--quiet", "--force", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--", url]
    refs = ["+HEAD:refs/hpcrun/HEAD", "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]
    try:
        _git(repository, "init", "--quiet", "--bare", "--template=")
        try:
            _git(repository, "fetch", *words, *refs, seconds=FETCH_TIMEOUT_SECONDS)
        except GitError as error:
            if "remote ref HEAD" not in str(error):  # its HEAD names no branch
                raise
            _git(repository, "fetch", *words, *refs[1:], seconds=FETCH_TIMEOUT_SECONDS)
    except GitError as error:
        output = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
        raise HpcrunError(
            f"{url} cannot be fetched: {output}",
            hint=f"does `git ls-remote {url}` work here? Passwords and keys are git's and ssh's to know",
            exit_code=1,
        ) from None


def resolve_version(repository: Path, ref: str | None) -> Version:
    """Return what a branch, tag or commit is in a fetched repository.

    Args:
        repository: The bare repository.
        ref: The name; None for the head of the default branch.

    Raises:
        HpcrunError: There is no such; names those that are like it.
    """
    if ref is None:
        candidates = ["refs/hpcrun/HEAD"]
    else:
        candidates = [f"refs/tags/{ref}", f"refs/heads/{ref}"]
        candidates += [ref] if re.fullmatch(r"[0-9a-f]{7,40}", ref) else []
    for name in candidates:
        try:
            commit = (
                _git(repository, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
                .decode(errors="replace")
                .strip()
            )
        except GitError:
            continue
        tags = (
            _git(repository, "tag", "--points-at", commit, "--sort=-version:refname").decode(errors="replace").split()
        )
        date = _git(repository, "show", "--no-patch", "--format=%cs", commit).decode(errors="replace").strip()
        return Version(commit, date, ref if ref in tags else next(iter(tags), None))
    names = (
        _git(repository, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/tags", "refs/heads")
        .decode(errors="replace")
        .split()
    )
    like = closest_match(ref or "", names)
    known = f"it has {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}"
    if ref is None:
        raise HpcrunError("the repository names no default branch", hint=f"choose one with --ref: {known}")
    raise HpcrunError(
        f"there is no branch, tag or commit {ref!r}", hint=f"did you mean {like}? {known}" if like else known
    )


def count_commits_apart(repository: Path, version: Version, target: Version) -> tuple[int, int]:
    """Return how many commits a version lacks that the target has, and how many it has that the target lacks."""
    try:
        answer = _git(
            repository, "rev-list", "--left-right", "--count", f"{version.commit}...{target.commit}", seconds=5
        ).split()
    except GitError:  # history was rewritten, and the old commit is gone
        return 1, 1
    return int(answer[1]), int(answer[0])


def describe_ref(repository: Path, ref: str | None) -> str:
    """Return what a name is that is followed: ``tag NAME``, ``branch NAME``, ``commit NAME`` or ``default branch``."""
    if ref is None:
        return "default branch"
    for kind, refs in (("tag", "refs/tags"), ("branch", "refs/heads")):
        with suppress(GitError):
            _git(repository, "rev-parse", "--verify", "--quiet", f"{refs}/{ref}")
            return f"{kind} {ref}"
    return f"commit {ref}" if re.fullmatch(r"[0-9a-f]{7,40}", ref) else ref


def newest_tag(repository: Path) -> str | None:
    """Return the highest tag, by version numbers."""
    words = ("for-each-ref", "--sort=-version:refname", "--count=1", "--format=%(refname:lstrip=2)", "refs/tags")
    return _git(repository, *words).decode(errors="replace").strip() or None


def extract_layer_files(repository: Path, version: Version, folder: Path) -> None:
    """Write the site files (``*.toml`` at the top) and templates (``templates/``) of a commit into a new folder.

    Raises:
        HpcrunError: There is none, or one is no plain file.
    """
    folder.mkdir()
    count = 0
    for name, blob in _list_layer_files(repository, version):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_git(repository, "cat-file", "blob", blob))
        count += 1
    if not count:
        raise HpcrunError(
            f"{version} has no site files: no *.toml at the top, and no templates/",
            hint="docs/sharing.md tells how such a repository looks",
        )
    write_version(folder, version)


def write_version(folder: Path, version: Version) -> None:
    """Write down which version an extracted folder is, and by which of its tags it is followed."""
    paths.write_atomically(folder / ".version.json", json.dumps(asdict(version)).encode())


def read_version(folder: Path) -> Version | None:
    """Return the version of an extracted folder; None where it is none."""
    try:
        return Version(**json.loads((folder / ".version.json").read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def layer_home(name: str) -> Path:
    """Return the folder with an added layer's copies, ``current`` (a link to the one in use), and ``repository``."""
    return paths.user_data_folder("sites") / name


def fetch_date(repository: Path) -> str | None:
    """Return the day a repository was fetched."""
    from datetime import datetime

    try:
        return datetime.fromtimestamp(repository.stat().st_ctime).astimezone().date().isoformat()
    except OSError:
        return None


def _list_layer_files(repository: Path, version: Version) -> Iterator[tuple[str, str]]:
    """Yield the name and blob of each file that is wanted (git-ls-tree(1), Output Format)."""
    listed = _git(repository, "ls-tree", "-r", "-z", "--long", "--full-tree", version.commit, seconds=10)
    for entry in listed.decode(errors="surrogateescape").split("\0"):
        facts, _, name = entry.partition("\t")
        path = PurePosixPath(name)
        if not (path.parts[:1] == ("templates",) or (len(path.parts) == 1 and path.suffix == ".toml")):
            continue
        mode, _, blob, size = facts.split()
        if mode not in {"100644", "100755"} or {"", ".", ".."} & set(name.split("/")) or not name.isprintable():
            raise HpcrunError(f"{name!r} in {version} is no plain file", hint="links and submodules are not followed")
        if int(size) > MAX_FILE_BYTES:
            raise HpcrunError(f"{name} in {version} has {size} bytes", hint=f"at most {MAX_FILE_BYTES} are taken")
        yield name, blob


def _git(repository: Path, *words: str, seconds: float = 5) -> bytes:
    return run_git(repository, *words, timeout=seconds, options=_OPTIONS, environment=_SAFE)
