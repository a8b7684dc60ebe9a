"""Where a program raised an exception: the user's line, or the last function of a package and the command before it."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from hpcrun.why.frames import FRAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.why.python_error import PythonError

PIP_NAMES = {
    "Bio": "biopython",
    "PIL": "pillow",
    "cv2": "opencv-python",
    "fairseq_cli": "fairseq",
    "git": "gitpython",
    "pkg_resources": "setuptools",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "tensorflow_core": "tensorflow",
    "yaml": "pyyaml",
}
"""Names of packages that pip knows by another name than Python."""

_FUNCTION = re.compile(r", in (?P<function>\w+)$|:\d+ in (?P<boxed>\w+)\b")
_PACKAGE = re.compile(r"^.*-packages/(?:[\w.-]+\.egg/)?(?P<path>(?P<package>\w+)\S*)")
_PYTHON_FILE = re.compile(r"/lib(?:64)?/python[\d.]+/(?P<path>(?!(?:site|dist)-packages)\S+)")
_COMMAND = re.compile(r"/bin/(?P<name>[\w.-]+)$")
_NAMES_RELEASE = re.compile(r"\b(?:pip3? install|conda install|releases?|versions?|upgrade|newer|older)\b")
_MAIN_MODULE = re.compile(r"(?:/__main__|/__init__)?\.py$")
_LAUNCHERS = frozenset({"click", "typer", "fire", "absl", "hydra", "tqdm", "six", "decorator", "wrapt"})
"""Packages that only call the functions of others."""


class Frame(NamedTuple):
    """A frame of a traceback; ``package`` is empty for files outside of packages."""

    file: str
    function: str
    package: str


def describe_place(error: PythonError, lines: Sequence[str], advice: str = "") -> str:
    """Describe where an exception was raised, and what to check if no file of the user's is in its traceback.

    Args:
        error: The exception.
        lines: The lines of its log.
        advice: The advice on the exception, which may name a release or an installation already.
    """
    code = f", in `{error.code}`" if error.code else ""
    frames = _find_frames(error, lines)
    if error.ignored or not error.is_of_library or not any(frame.package for frame in frames):
        library = f", by {error.library}{_describe_caller(frames)}" if error.library else ""
        cause = f"; its cause at {error.cause_place}" if error.cause_place else ""
        return f"it was raised at {error.file}, line {error.number}{code}{library}{cause}"
    last, path = frames[-1], _shorten(error.file)
    place = f"line {error.number}" if path == _shorten(last.file) else f"{path}, line {error.number}"
    function = f"{last.function}() of " if last.function else ""
    command = _find_command(frames)
    called = f", which `{command}` called" if command else ""
    package = next(frame.package for frame in reversed(frames) if frame.package)
    check = _describe_suspects(package, command, names_release=bool(_NAMES_RELEASE.search(advice)))
    return f"it was raised by {function}{_shorten(last.file)} ({place}{code}){called}; {check}"


def _describe_suspects(package: str, command: str, *, names_release: bool) -> str:
    """Say what to check after an exception of a package that no file of the user's called."""
    given = f"`{command}`" if command else "the program"
    suspects = f"no file of yours is in the traceback, so check the arguments, configuration and input files of {given}"
    if names_release:
        return suspects
    return (
        f"{suspects}, then the release of {package}: try a newer one (pip install -U {package}) or the one that "
        f"its documentation names, and report it to {package} if both fail"
    )


def _find_frames(error: PythonError, lines: Sequence[str]) -> list[Frame]:
    """Return the frames of the traceback that has the line where the exception was raised."""
    frames: list[Frame] = []
    has_place = False
    for line in lines[error.first : error.last + 1]:
        if "Traceback (most recent call last)" in line:
            if has_place:
                break
            frames = []
        if match := FRAME.search(line[line.find('File "') :] if 'File "' in line else line):
            file = (match["file"] or match["boxed"] or match["notebook"] or match["listed"] or "").replace("\\", "/")
            function = _FUNCTION.search(line.rstrip())
            name = (function["function"] or function["boxed"] or "") if function else ""
            package = _PACKAGE.match(file)
            if file.startswith("<string>"):  # code that six or dataclasses made
                continue
            frames.append(Frame(file, name, PIP_NAMES.get(package["package"], package["package"]) if package else ""))
            has_place = has_place or (file == error.file and f"{error.number}" in line)
    return frames


def _describe_caller(frames: Sequence[Frame]) -> str:
    """Name the package that called the one that raised the exception, if it is neither the user's nor a launcher."""
    packages = [frame.package for frame in frames]
    callers = [first for first, second in pairwise(packages) if second == packages[-1] != first]
    return f", called by {callers[-1]}" if callers and callers[-1] and callers[-1] not in _LAUNCHERS else ""


def _find_command(frames: Sequence[Frame]) -> str:
    """Return the command, or ``python -m MODULE``, that called the first function; empty if it is unknown."""
    for frame, following in pairwise(frames):
        if command := _COMMAND.search(frame.file):
            return command["name"]
        is_runner = frame.function in {"_run_code", "_run_module_as_main"} or frame.file == "<frozen runpy>"
        if is_runner and following.package and (found := _PACKAGE.match(following.file)):
            return f"python -m {_MAIN_MODULE.sub('', found['path']).replace('/', '.')}"
    return ""


def _shorten(file: str) -> str:
    """Return a file of a package, or of Python, relative to the folder of packages."""
    if found := _PACKAGE.match(file):
        return found["path"]
    python_file = _PYTHON_FILE.search(file)
    return f"Python's {python_file['path']}" if python_file else file
