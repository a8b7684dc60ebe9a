"""Copies of git repositories with site files, fetched as data: no code in a repository ever runs.

The files are read from git objects without a work tree, so no hook, filter or submodule is used.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.errors import HpcrunError, closest_match
from hpcrun.frozen import frozen
from hpcrun.git import GitError, run_git

if TYPE_CHECKING:
    from collections.abc import Iterator

FETCH_TIMEOUT_SECONDS = 60.0
"""Timeout of a fetch."""

MAX_FILE_BYTES = 1_000_000
"""Maximum size of a site file or template."""

_URL = re.compile(r"(https|ssh|file)://[^\s]+|[A-Za-z0-9_][A-Za-z0-9_.-]*@[A-Za-z0-9][A-Za-z0-9.-]*:[^\s:-][^\s]*")
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+/-]*")
_SAFE_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "https:ssh:file"}
_GIT_OPTIONS = ("--git-dir=.", "-c", "gc.auto=0", "-c", "maintenance.auto=false")


@frozen
class Version:
    """A commit of a repository.

    Attributes:
        commit: The full hash.
        date: The day of the commit.
        tag: The tag that the layer follows, else another tag of the commit; None without a tag.
    """

    commit: str
    date: str
    tag: str | None = None

    @property
    def short_hash(self) -> str:
        """The first 12 digits of the commit hash, which name the folder of its files."""
        return self.commit[:12]

    def __str__(self) -> str:
        return f"{self.tag} ({self.commit[:8]}, {self.date})" if self.tag else f"{self.commit[:8]} ({self.date})"


def is_repository_url(source: str) -> bool:
    """Return whether a source is the URL of a git repository rather than a folder.

    Raises:
        HpcrunError: The URL is not safe as an argument of git.
    """
    if _URL.fullmatch(source) and source.isprintable() and "://-" not in source:
        if re.match(r"[a-z]+://[^/@]*:[^/@]*@", source):
            raise HpcrunError(
                "the URL contains a password, which everybody could read",
                hint="leave it out: git asks its credential helper (git help credentials)",
            )
        return True
    if source.startswith("-") or "::" in source or "://" in source or not source.isprintable():
        raise HpcrunError(
            f"{source!r} is not a supported URL of a repository",
            hint="https://HOST/PATH, ssh://HOST/PATH, user@HOST:PATH, file:///PATH, or a folder",
        )
    return False


def require_ref_name(ref: str) -> None:
    """Refuse an invalid name of a branch, tag or commit.

    Raises:
        HpcrunError: The name is not valid.
    """
    if not _REF.fullmatch(ref) or ".." in ref:
        raise HpcrunError(
            f"--ref={ref}: not a valid name of a branch, tag or commit", hint="such as --ref v1.2, or --ref main"
        )


def fetch(url: str, repository: Path) -> None:
    """Fetch all branches and tags of a repository into a new bare repository.

    Args:
        url: The URL of the repository, as accepted by `is_repository_url`.
        repository: The bare repository to create.

    Raises:
        HpcrunError: The URL cannot be reached, or needs a password that is not stored.
    """
    repository.mkdir()
    fetch_options = ["--quiet", "--force", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head", "--", url]
    refs = ["+HEAD:refs/hpcrun/HEAD", "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]
    try:
        _run_git(repository, "init", "--quiet", "--bare", "--template=")
        try:
            _run_git(repository, "fetch", *fetch_options, *refs, seconds=FETCH_TIMEOUT_SECONDS)
        except GitError as error:
            if "remote ref HEAD" not in str(error):  # the HEAD of the remote repository points to no branch
                raise
            _run_git(repository, "fetch", *fetch_options, *refs[1:], seconds=FETCH_TIMEOUT_SECONDS)
    except GitError as error:
        output = "; ".join(line.strip() for line in str(error).splitlines() if line.strip())
        raise HpcrunError(
            f"{url} cannot be fetched: {output}",
            hint=f"does `git ls-remote {url}` work here? git and ssh manage passwords and keys",
            exit_code=1,
        ) from None


def resolve_version(repository: Path, ref: str | None) -> Version:
    """Resolve a branch, tag or commit of a fetched repository.

    Args:
        repository: The bare repository.
        ref: The branch, tag or commit; None for the head of the default branch.

    Raises:
        HpcrunError: The name does not exist; the message suggests similar names.
    """
    if ref is None:
        candidates = ["refs/hpcrun/HEAD"]
    else:
        candidates = [f"refs/tags/{ref}", f"refs/heads/{ref}"]
        candidates += [ref] if re.fullmatch(r"[0-9a-f]{7,40}", ref) else []
    for name in candidates:
        try:
            commit = (
                _run_git(repository, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
                .decode(errors="replace")
                .strip()
            )
        except GitError:
            continue
        tags = (
            _run_git(repository, "tag", "--points-at", commit, "--sort=-version:refname")
            .decode(errors="replace")
            .split()
        )
        date = _run_git(repository, "show", "--no-patch", "--format=%cs", commit).decode(errors="replace").strip()
        return Version(commit, date, ref if ref in tags else next(iter(tags), None))
    names = (
        _run_git(repository, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/tags", "refs/heads")
        .decode(errors="replace")
        .split()
    )
    closest_name = closest_match(ref or "", names)
    known_names = f"it has {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}"
    if ref is None:
        raise HpcrunError("the repository has no default branch", hint=f"choose one with --ref: {known_names}")
    raise HpcrunError(
        f"there is no branch, tag or commit {ref!r}",
        hint=f"did you mean {closest_name}? {known_names}" if closest_name else known_names,
    )


def count_commits_apart(repository: Path, version: Version, target: Version) -> tuple[int, int]:
    """Return the numbers of commits that a version is behind and ahead of a target."""
    try:
        counts = _run_git(
            repository, "rev-list", "--left-right", "--count", f"{version.commit}...{target.commit}", seconds=5
        ).split()
    except GitError:  # the history of the branch was rewritten, and the old commit is gone
        return 1, 1
    return int(counts[1]), int(counts[0])


def describe_ref(repository: Path, ref: str | None) -> str:
    """Return the kind of a ref with its name: ``tag NAME``, ``branch NAME``, ``commit NAME`` or ``default branch``."""
    if ref is None:
        return "default branch"
    for kind, refs in (("tag", "refs/tags"), ("branch", "refs/heads")):
        with suppress(GitError):
            _run_git(repository, "rev-parse", "--verify", "--quiet", f"{refs}/{ref}")
            return f"{kind} {ref}"
    return f"commit {ref}" if re.fullmatch(r"[0-9a-f]{7,40}", ref) else ref


def newest_tag(repository: Path) -> str | None:
    """Return the tag with the highest version number."""
    arguments = ("for-each-ref", "--sort=-version:refname", "--count=1", "--format=%(refname:lstrip=2)", "refs/tags")
    return _run_git(repository, *arguments).decode(errors="replace").strip() or None


def extract_layer_files(repository: Path, version: Version, folder: Path) -> None:
    """Write the site files (``*.toml`` at the top) and templates (``templates/``) of a commit into a new folder.

    Raises:
        HpcrunError: The commit has no site files and templates, or one of them is not a regular file.
    """
    folder.mkdir()
    file_count = 0
    for name, blob in _list_layer_files(repository, version):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_run_git(repository, "cat-file", "blob", blob))
        file_count += 1
    if not file_count:
        raise HpcrunError(
            f"{version} has no site files: no *.toml at the top, and no templates/",
            hint="docs/sharing.md describes such a repository",
        )
    write_version(folder, version)


def write_version(folder: Path, version: Version) -> None:
    """Record the version of an extracted folder, with the tag that the layer follows."""
    paths.write_atomically(folder / ".version.json", json.dumps(asdict(version)).encode())


def read_version(folder: Path) -> Version | None:
    """Return the version recorded in an extracted folder; None if the folder has no such record."""
    try:
        return Version(**json.loads((folder / ".version.json").read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def added_layer_folder(name: str) -> Path:
    """Return an added layer's folder: it contains versions, ``current`` (a link to one of them) and ``repository``."""
    return paths.user_data_folder("sites") / name


def fetch_date(repository: Path) -> str | None:
    """Return the day of the last fetch of a repository."""
    from datetime import datetime

    try:
        return datetime.fromtimestamp(repository.stat().st_ctime).astimezone().date().isoformat()
    except OSError:
        return None


def _list_layer_files(repository: Path, version: Version) -> Iterator[tuple[str, str]]:
    """Yield the name and blob of each site file and template (git-ls-tree(1), Output Format)."""
    entries = _run_git(repository, "ls-tree", "-r", "-z", "--long", "--full-tree", version.commit, seconds=10)
    for entry in entries.decode(errors="surrogateescape").split("\0"):
        metadata, _, name = entry.partition("\t")
        path = PurePosixPath(name)
        if not (path.parts[:1] == ("templates",) or (len(path.parts) == 1 and path.suffix == ".toml")):
            continue
        mode, _, blob, size = metadata.split()
        if mode not in {"100644", "100755"} or {"", ".", ".."} & set(name.split("/")) or not name.isprintable():
            raise HpcrunError(
                f"{name!r} in {version} is not a regular file", hint="links and submodules are not supported"
            )
        if int(size) > MAX_FILE_BYTES:
            raise HpcrunError(f"{name} in {version} has {size} bytes", hint=f"the maximum is {MAX_FILE_BYTES}")
        yield name, blob


def _run_git(repository: Path, *arguments: str, seconds: float = 5) -> bytes:
    return run_git(repository, *arguments, timeout=seconds, options=_GIT_OPTIONS, environment=_SAFE_ENVIRONMENT)
