"""Snapshots: copies of the user's code in the run directory, so that later edits do not affect queued jobs."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hpcrun import git, paths, permissions
from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hpcrun.workload import Workload

MAX_BYTES = 200_000_000
MAX_FILES = 20_000
GIT_TIMEOUT_SECONDS = 60


@frozen
class Snapshot:
    """A plan for copying the user's code to the run directory.

    Attributes:
        source: The folder of the code.
        copy: The destination folder.
        kind: ``repository``: tracked files, and Python files that git does not ignore; ``folder``: the whole
            folder of a workload; ``script``: a script with the modules and packages in its folder.
        required_files: Files of the program, which are copied even if git does not track them.
        run_root: The folder of run directories, which is never copied.
    """

    source: Path
    copy: Path
    kind: Literal["repository", "folder", "script"]
    required_files: tuple[Path, ...]
    run_root: Path

    def copied_path(self, path: Path) -> Path:
        """Return the path of the copy of a file; a path outside the code is returned unchanged."""
        return self.copy / path.relative_to(self.source) if path.is_relative_to(self.source) else path

    def relocate_program(self, program: Workload) -> Workload:
        """Return the program with paths in the copy instead of the source."""
        program_words = (
            word if word is None or not Path(word).is_absolute() else str(self.copied_path(Path(word)))
            for word in program.program
        )
        return replace(program, program=tuple(program_words))

    def relocate_directory(self, current_directory: Path) -> Path:
        """Return the ranks' working directory: the current directory, or its copy if it is part of the code."""
        return current_directory if self.kind == "script" else self.copied_path(current_directory)

    def list_files(self) -> list[Path]:
        """List the files to copy.

        Raises:
            HpcrunError: Git cannot list the files, or there are too many files, or they are too large.
        """
        candidates = {"repository": self._tracked_files, "folder": self._walk_folder, "script": self._python_modules}[
            self.kind
        ]()
        files = list(
            islice(
                dict.fromkeys([*self.required_files, *(file for file in candidates if _exists(file))]), MAX_FILES + 1
            )
        )
        sizes = {file: file.lstat().st_size for file in files}
        total = sum(sizes.values())
        if len(files) > MAX_FILES or total > MAX_BYTES:
            file_count = f"more than {MAX_FILES:,}" if len(files) > MAX_FILES else f"{len(files):,}"
            largest_file = max(files, key=lambda file: sizes[file])
            kind_name = "folder" if self.kind == "script" else self.kind
            raise HpcrunError(
                f"--snapshot: the code in {self.source} has {file_count} files of {_format_size(total)}, and the "
                f"limit is {MAX_FILES:,} files of {_format_size(MAX_BYTES)}; "
                f"{largest_file.relative_to(self.source)} has {_format_size(sizes[largest_file])}",
                hint=f"keep data out of the {kind_name}, and name it by its path; or leave --snapshot out",
            )
        return files

    def copy_files(self, files: Iterable[Path], working_directory: Path) -> None:
        """Copy the files.

        Args:
            files: The result of `list_files`.
            working_directory: The working directory of the ranks, which is created in the copy even if it has no files.

        Raises:
            HpcrunError: A file cannot be read, or the copy cannot be written.
        """
        names = {file.relative_to(self.source) for file in files}
        names_and_parents = names.union(*(name.parents for name in names))
        try:
            if working_directory.is_relative_to(self.copy):
                permissions.make_folder(working_directory)
            for name in names:
                permissions.make_folder((self.copy / name).parent)
                with suppress(FileNotFoundError):  # the file was removed in the meantime
                    self._copy(name, names_and_parents)
        except OSError as error:
            raise HpcrunError(
                f"--snapshot: cannot copy {error.filename or self.source}: {error.strerror}",
                hint="it must be readable, and the run directory needs space for it; or leave --snapshot out",
            ) from None

    def _copy(self, name: Path, names_and_parents: set[Path]) -> None:
        source, copy = self.source / name, self.copy / name
        if source.is_symlink():
            target = Path(os.path.normpath(source.parent / source.readlink()))
            is_inside = target.is_relative_to(self.source) and target.relative_to(self.source) in names_and_parents
            copy.symlink_to(os.path.relpath(self.copied_path(target), copy.parent) if is_inside else target)
        elif source.is_dir():  # a submodule that is not checked out
            permissions.make_folder(copy)
        else:
            with open(copy, "wb", opener=permissions.opener):
                pass
            shutil.copyfile(source, copy)
            shutil.copystat(source, copy)
            allowed_mode = copy.parent.stat().st_mode & 0o055 | 0o700
            copy.chmod(
                source.stat().st_mode & allowed_mode
            )  # keep the executable bits; the site key share_runs decides who may read the copy

    def _tracked_files(self) -> list[Path]:
        try:
            names = git.run_git(self.source, "ls-files", "-z", "--recurse-submodules", timeout=GIT_TIMEOUT_SECONDS)
            untracked_options = ("ls-files", "-z", "--others", "--exclude-standard", "--", "*.py")
            names += git.run_git(self.source, *untracked_options, timeout=GIT_TIMEOUT_SECONDS)
        except git.GitError as error:
            hint = "git must be able to list the files of the code; or leave --snapshot out"
            raise HpcrunError(f"--snapshot: git does not list the files of {self.source}: {error}", hint=hint) from None
        files = [self.source / os.fsdecode(name) for name in names.split(b"\0") if name]
        if self.source.is_relative_to(self.run_root):  # the whole repository lies inside the run root
            return files
        return [file for file in files if not file.is_relative_to(self.run_root)]

    def _walk_folder(self) -> Iterator[Path]:
        for folder, folders, files in os.walk(self.source):
            current_folder = Path(folder)
            links = [name for name in folders if (current_folder / name).is_symlink()]
            folders[:] = [name for name in folders if name not in links and self._is_code_folder(current_folder / name)]
            yield from (current_folder / name for name in (*files, *links))

    def _is_code_folder(self, folder: Path) -> bool:
        """Return whether a folder may contain code: False for the run root, caches and virtual environments."""
        return folder != self.run_root and folder.name != "__pycache__" and not (folder / "pyvenv.cfg").exists()

    def _python_modules(self) -> Iterator[Path]:
        yield from self.source.glob("*.py")
        for package in self.source.glob("*/__init__.py"):
            yield from replace(self, source=package.parent)._walk_folder()  # noqa: SLF001 - the object is of this class


def plan_snapshot(program: Workload, run_dir: Path, working_directory: Path) -> Snapshot:
    """Plan the snapshot of a program, without copying anything.

    Args:
        program: The program.
        run_dir: The run directory.
        working_directory: The working directory of the ranks.

    Raises:
        HpcrunError: It is unknown which files belong to the program.
    """
    code_folder, copy = program.code_folder(working_directory), run_dir / "code"
    paths_of_words = [working_directory / word for word in program.program if word and "/" in word]
    paths_of_words += [program.folder / "workload.toml"] if program.folder else []
    program_files = [Path(os.path.normpath(word)) for word in paths_of_words if word.is_file()]

    def make_snapshot(source: Path, kind: Literal["repository", "folder", "script"]) -> Snapshot:
        required_files = tuple(file for file in program_files if file.is_relative_to(source))
        return Snapshot(source, copy, kind, required_files, run_dir.parent)

    is_bundled = program.folder is not None and program.folder.is_relative_to(paths.shipped_folder("workloads"))
    if (repository := git.find_repository(code_folder)) and not is_bundled:
        return make_snapshot(repository, "repository")
    if program.folder:
        return make_snapshot(program.folder, "folder")
    if program.program[0] is None:
        return make_snapshot(code_folder, "script")
    raise HpcrunError(
        f"--snapshot: {code_folder} is in no git repository, so it is not known which files {program.name} needs",
        hint="git init, and git add the files of the program; or submit a Python script or a workload folder",
    )


def _exists(file: Path) -> bool:
    return os.path.lexists(file)  # true for a dangling link, too


def _format_size(size: int) -> str:
    return f"{size / 1e6:,.0f} MB" if size >= 1e6 else f"{size / 1e3:,.0f} KB"
