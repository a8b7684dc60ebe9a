"""Files of a Python program: the script that a command line runs, and the user's modules that a file imports."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_FILE_BYTES = 1_000_000  # larger files are not read

_PYTHON_NAME = re.compile(r"python[\d.]*")
_MODULE_OPTION = re.compile(r"-[A-Za-z]*m")
_OPTIONS_WITH_VALUE = frozenset({"-W", "-X"})
_MODULE_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*")  # import_module also takes names that no import statement could

_INSTALLED_FOLDER = re.compile(r"(?:site|dist)-packages|.*\.egg")
_INSTALLED_PACKAGE = re.compile(r".*\.dist-info|.*\.egg|.*-\d.*\.egg-info|easy-install\.pth|.*-nspkg\.pth")
"""Matches what installed packages leave; not ``lab.egg-info`` beside the user's source, nor weights, ``model.pth``."""

_is_file, _is_dir = os.path.isfile, os.path.isdir
"""Unlike those of Path, these functions return False for long names and in folders that may not be entered."""


def find_script(argv: tuple[str, ...], start: Path) -> Path | None:
    """Return the file of a command line's Python script; None if it runs no script that hpcrun can find.

    Args:
        argv: The command line.
        start: The directory in which it is started.
    """
    name, is_module = _find_program(argv)
    if not is_module:
        return start / name if name.endswith(".py") else None
    if not _MODULE_NAME.fullmatch(name):
        return None
    paths = [folder.joinpath(*name.split(".")) for folder in (start, *_find_user_folders(start))]
    files = [file for path in paths for file in (path.with_suffix(".py"), path / "__main__.py")]
    return next((file for file in files if _is_file(file)), None)


def import_folders(argv: tuple[str, ...], start: Path) -> tuple[Path, ...]:
    """Return the folders in which Python looks for the user's modules, in this order; empty without a script."""
    if not (file := find_script(argv, start)):
        return ()
    return (start if _find_program(argv)[1] else file.resolve().parent, *_find_user_folders(start))


def is_python(program: str) -> bool:
    """Return whether a program is Python, by its name."""
    return bool(_PYTHON_NAME.fullmatch(Path(program).name))


def _find_program(argv: tuple[str, ...]) -> tuple[str, bool]:
    """Return the script or module that a command line runs, and whether it is a module; empty if it runs neither."""
    program = argv[0] if argv else ""
    if not is_python(program):
        return program if program.endswith(".py") else "", False
    words = iter(argv[1:])
    for word in words:
        if not word.startswith("-"):
            return word, False
        if _MODULE_OPTION.fullmatch(word):
            return next(words, ""), True
        if word in _OPTIONS_WITH_VALUE:
            next(words, "")
    return "", False


def _find_user_folders(start: Path) -> list[Path]:
    """Return the folders in PYTHONPATH, without those of installed packages."""
    folders = [start / path for path in os.environ.get("PYTHONPATH", "").split(":") if path]
    return [folder for folder in folders if not _is_installed(folder)]


def _is_installed(folder: Path) -> bool:
    """Return whether a folder contains installed packages, not the user's modules."""
    if _INSTALLED_FOLDER.fullmatch(folder.name):
        return True
    with suppress(OSError):
        return _has_installed_packages(folder, folder.stat().st_mtime_ns)
    return False


@lru_cache
def _has_installed_packages(folder: Path, _mtime_ns: int) -> bool:
    with os.scandir(folder) as entries:
        return any(_INSTALLED_PACKAGE.fullmatch(entry.name) for entry in entries)


class ModuleFinder:
    """Finds the files of the user's modules, and checks each path once, because the file system may be slow.

    Args:
        folders: The folders in which Python looks for the user's modules, first that of the script.
        libraries: Packages that are the user's only if they are in the first of the folders, as those of Python are.
    """

    def __init__(self, folders: tuple[Path, ...], libraries: frozenset[str]) -> None:
        self.folders = folders
        self.libraries = libraries | sys.stdlib_module_names
        self._is_file, self._is_dir = cache(_is_file), cache(_is_dir)

    def is_own(self, package: str) -> bool:
        """Return whether a module of the user with a name is in the folder where Python looks first."""
        path = f"{self.folders[0]}/{package}"
        return package not in {"", "hpcrun"} and (self._is_file(f"{path}.py") or self._is_file(f"{path}/__init__.py"))

    def find(self, names: Iterable[str], file: Path, more_folders: Iterable[Path] = ()) -> Iterator[Path]:
        """Yield the files of the user's modules among imported names, and of the packages that contain these modules.

        Their order depends only on the names and folders: if there are many, only the first are read.

        Args:
            names: Dotted names, such as ``lab.model.Net``; a relative name begins with the dots of its import.
            file: The file that imports them.
            more_folders: Other folders in which the modules may be.
        """
        words_by_package: dict[str, list[list[str]]] = {}
        for name in sorted({*names}):
            rest = name.lstrip(".")
            words, level = rest.split("."), len(name) - len(rest)
            if rest and not _MODULE_NAME.fullmatch(rest):
                continue
            if not level:
                words_by_package.setdefault(words[0], []).append(words)
            elif level <= len(file.parents):
                yield from self._find_files(words, file.parents[level - 1])
        folders = dict.fromkeys([*self.folders, *more_folders])
        for package, names_in_package in words_by_package.items():
            is_library = package in self.libraries
            if is_library and not self.is_own(package):
                continue
            for folder in self.folders[:1] if is_library else folders:
                is_folder = self._is_dir(f"{folder}/{package}")
                for words in names_in_package if is_folder else [[package]]:
                    yield from self._find_files(words, folder)

    def _find_files(self, words: list[str], folder: Path) -> Iterator[Path]:
        """Yield the files of a module in a folder, given the words of its name, and of the packages that contain it."""
        path = str(folder)
        for word in words:
            path += f"/{word}"
            if self._is_file(f"{path}.py"):
                yield Path(f"{path}.py")
            if not self._is_dir(path):
                return
            if self._is_file(f"{path}/__init__.py"):
                yield Path(f"{path}/__init__.py")
