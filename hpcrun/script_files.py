"""Files of a Python program: the script that a command line runs, and the user's modules that a file imports."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import lru_cache
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


def _find_program(argv: tuple[str, ...]) -> tuple[str, bool]:
    """Return the script or module that a command line runs, and whether it is a module; empty if it runs neither."""
    program = argv[0] if argv else ""
    if not _PYTHON_NAME.fullmatch(Path(program).name):
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


def is_module(name: str, folder: Path) -> bool:
    """Return whether a folder contains the module or package with a name."""
    return _is_file(folder / f"{name}.py") or _is_file(folder / name / "__init__.py")


def find_modules(names: Iterable[str], file: Path, folders: Iterable[Path]) -> Iterator[Path]:
    """Yield the files of the user's modules among imported names, and of the packages that contain these modules.

    Their order depends only on the names and folders: if there are many, only the first are read.

    Args:
        names: Dotted names, such as ``lab.model.Net``; a relative name begins with the dots of its import.
        file: The file that imports them.
        folders: The folders in which Python looks for the user's modules.
    """
    sorted_names = sorted({*names})
    for name in (name for name in sorted_names if name.startswith(".")):
        rest = name.lstrip(".")
        level = len(name) - len(rest)
        if level <= len(file.parents) and (not rest or _MODULE_NAME.fullmatch(rest)):
            yield from _find_files(rest.split("."), file.parents[level - 1])
    words_by_package: dict[str, list[list[str]]] = {}
    for name in filter(_MODULE_NAME.fullmatch, sorted_names):
        words = name.split(".")
        if words[0] != "hpcrun":
            words_by_package.setdefault(words[0], []).append(words)
    for folder in folders:
        for package, names_in_package in words_by_package.items():
            if _is_dir(folder / package):
                for words in names_in_package:
                    yield from _find_files(words, folder)
            else:
                yield from _find_files([package], folder)


def _find_files(words: list[str], folder: Path) -> Iterator[Path]:
    """Yield the files of a module, given the words of its name, and of the packages that contain it."""
    path = folder
    for word in words:
        file, path = path / f"{word}.py", path / word
        if _is_file(file):
            yield file
        if not _is_dir(path):
            return
        if _is_file(path / "__init__.py"):
            yield path / "__init__.py"
