"""A copy of the user's code in the run directory, which the job runs: editing it later changes no queued job."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hpcrun import git, paths, permissions
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hpcrun.workload import Workload

MOST_BYTES = 200_000_000
MOST_FILES = 20_000
GIT_SECONDS = 60


@dataclass(frozen=True)
class Snapshot:
    """What is to be copied, and where to.

    Attributes:
        source: The folder that the code is in.
        copy: The folder that it is copied to.
        what: A repository (what git tracks, and Python files that it does not ignore), a workload's folder (all of it),
            or a script (it, and the modules and packages beside it).
        needed: The program's own files, which are copied also where git does not know them.
        run_root: The folder of run directories, which is never copied.
    """

    source: Path
    copy: Path
    what: Literal["repository", "folder", "script"]
    needed: tuple[Path, ...]
    run_root: Path

    def of(self, path: Path) -> Path:
        """Return the copy of a path; a path that is none of the code's is its own."""
        return self.copy / path.relative_to(self.source) if path.is_relative_to(self.source) else path

    def program(self, program: Workload) -> Workload:
        """Return a program that runs from the copy."""
        words = (
            word if word is None or not Path(word).is_absolute() else str(self.of(Path(word)))
            for word in program.program
        )
        return replace(program, program=tuple(words))

    def directory(self, current: Path) -> Path:
        """Return where the ranks start: in the copy of the current directory, where that is a part of the code."""
        return current if self.what == "script" else self.of(current)

    def files(self) -> list[Path]:
        """Return the files that are copied.

        Raises:
            HpcrunError: Git does not tell them, or they are too many or too large.
        """
        found = {"repository": self._tracked, "folder": self._below, "script": self._modules}[self.what]()
        files = list(islice(dict.fromkeys([*self.needed, *(file for file in found if _there(file))]), MOST_FILES + 1))
        sizes = {file: file.lstat().st_size for file in files}
        total = sum(sizes.values())
        if len(files) > MOST_FILES or total > MOST_BYTES:
            number = f"more than {MOST_FILES:,}" if len(files) > MOST_FILES else f"{len(files):,}"
            largest = max(files, key=lambda file: sizes[file])
            where = "folder" if self.what == "script" else self.what
            raise HpcrunError(
                f"--snapshot: the code in {self.source} has {number} files of {_size(total)}, and a snapshot may have "
                f"{MOST_FILES:,} of {_size(MOST_BYTES)}; "
                f"{largest.relative_to(self.source)} has {_size(sizes[largest])}",
                hint=f"keep data out of the {where}, and name it by its path; or leave --snapshot out",
            )
        return files

    def write(self, files: Iterable[Path], start: Path) -> None:
        """Copy files.

        Args:
            files: What `files` has returned.
            start: Where the ranks start, which is made in the copy even where it has no files.

        Raises:
            HpcrunError: One cannot be read, or the copy cannot be written.
        """
        names = {file.relative_to(self.source) for file in files}
        known = names.union(*(name.parents for name in names))
        try:
            if start.is_relative_to(self.copy):
                permissions.make_folder(start)
            for name in names:
                permissions.make_folder((self.copy / name).parent)
                with suppress(FileNotFoundError):  # removed meanwhile
                    self._copy(name, known)
        except OSError as error:
            raise HpcrunError(
                f"--snapshot: cannot copy {error.filename or self.source}: {error.strerror}",
                hint="it must be readable, and the run directory have room for it; or leave --snapshot out",
            ) from None

    def _copy(self, name: Path, known: set[Path]) -> None:
        source, copy = self.source / name, self.copy / name
        if source.is_symlink():
            target = Path(os.path.normpath(source.parent / source.readlink()))
            inside = target.is_relative_to(self.source) and target.relative_to(self.source) in known
            copy.symlink_to(os.path.relpath(self.of(target), copy.parent) if inside else target)
        elif source.is_dir():  # a submodule that is not checked out
            permissions.make_folder(copy)
        else:
            with open(copy, "wb", opener=permissions.opener):
                pass
            shutil.copyfile(source, copy)
            shutil.copystat(source, copy)
            allowed = copy.parent.stat().st_mode & 0o055 | 0o700
            copy.chmod(source.stat().st_mode & allowed)  # its x bits count, and who may read it is the run's business

    def _tracked(self) -> list[Path]:
        try:
            known = git.ask(self.source, "ls-files", "-z", "--recurse-submodules", seconds=GIT_SECONDS)
            new = ("ls-files", "-z", "--others", "--exclude-standard", "--", "*.py")
            known += git.ask(self.source, *new, seconds=GIT_SECONDS)
        except git.GitError as error:
            hint = "git must be able to list the files of the code; or leave --snapshot out"
            raise HpcrunError(f"--snapshot: git does not list the files of {self.source}: {error}", hint=hint) from None
        files = [self.source / os.fsdecode(name) for name in known.split(b"\0") if name]
        if self.source.is_relative_to(self.run_root):  # all the code is there too
            return files
        return [file for file in files if not file.is_relative_to(self.run_root)]

    def _below(self) -> Iterator[Path]:
        for folder, folders, files in os.walk(self.source):
            here = Path(folder)
            links = [name for name in folders if (here / name).is_symlink()]
            folders[:] = [name for name in folders if name not in links and self._is_code(here / name)]
            yield from (here / name for name in (*files, *links))

    def _is_code(self, folder: Path) -> bool:
        """Return whether a folder is none of what programs make: runs, caches, virtual environments."""
        return folder != self.run_root and folder.name != "__pycache__" and not (folder / "pyvenv.cfg").exists()

    def _modules(self) -> Iterator[Path]:
        yield from self.source.glob("*.py")
        for package in self.source.glob("*/__init__.py"):
            yield from replace(self, source=package.parent)._below()  # noqa: SLF001 - its own kind


def plan(program: Workload, run_dir: Path, start: Path) -> Snapshot:
    """Decide what of a program is copied; nothing is copied yet.

    Args:
        program: The program.
        run_dir: The run directory.
        start: Where its ranks start.

    Raises:
        HpcrunError: Nobody knows which files belong to the program.
    """
    code, copy = program.code(start), run_dir / "code"
    words = [start / word for word in program.program if word and "/" in word]
    words += [program.folder / "workload.toml"] if program.folder else []
    named = [Path(os.path.normpath(word)) for word in words if word.is_file()]

    def snapshot(source: Path, what: Literal["repository", "folder", "script"]) -> Snapshot:
        needed = tuple(file for file in named if file.is_relative_to(source))
        return Snapshot(source, copy, what, needed, run_dir.parent)

    bundled = program.folder is not None and program.folder.is_relative_to(paths.shipped_folder("workloads"))
    if (repository := git.top(code)) and not bundled:
        return snapshot(repository, "repository")
    if program.folder:
        return snapshot(program.folder, "folder")
    if program.program[0] is None:
        return snapshot(code, "script")
    raise HpcrunError(
        f"--snapshot: {code} is in no git repository, so it is not known which files {program.name} needs",
        hint="git init, and git add what it needs; or submit a Python script or a workload folder",
    )


def _there(file: Path) -> bool:
    return os.path.lexists(file)  # also a link that leads nowhere


def _size(size: int) -> str:
    return f"{size / 1e6:,.0f} MB" if size >= 1e6 else f"{size / 1e3:,.0f} KB"
