"""Which site's cluster this is: by variables that it sets, or by this host's name."""

from __future__ import annotations

import json
import os
import warnings
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from hpcrun import paths
from hpcrun.errors import HpcrunError
from hpcrun.sites.source import file_state

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_KEYS = "detect", "hosts"


def detect_site(known: dict[str, list[Path]], read: Callable[[Path], dict[str, Any]]) -> tuple[str, str] | None:
    """Return the site of this cluster, and how it was recognised; None where no file says.

    Sites that name variables of their cluster's come before those that name host patterns: host names as ``login1`` are
    many clusters'. A file that cannot be read now counts by what it last said; one that never could be is left out, and
    a warning says so.

    Args:
        known: Each site's files, lowest layer first.
        read: Returns what a file says; raises `HpcrunError` where it cannot be read.
    """
    marks = _read_detection_keys([file for layered in known.values() for file in layered], read)
    for by in (_match_variables, _match_host):
        for name, layered in known.items():
            if how := next(filter(None, (by(marks.get(str(file), {})) for file in reversed(layered))), None):
                return name, how
    return None


def _read_detection_keys(files: list[Path], read: Callable[[Path], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return what each file says of these keys; unchanged files are not parsed again: that takes a ms each."""
    notes = paths.user_cache_folder("sites") / "recognise.json"
    before = _read_cache(notes)
    now = {}
    for file in files:
        noted = before.get(str(file))
        state = None
        with suppress(OSError):
            state = list(file_state(file))
        if noted and noted[0] == state:
            now[str(file)] = noted
            continue
        try:
            text = read(file)
        except HpcrunError as error:  # somebody is writing it, or has closed it: others go on
            if noted:
                now[str(file)] = noted
            else:
                warnings.warn(f"{error.message}; it is left out", FutureWarning, stacklevel=2)
            continue
        now[str(file)] = [state, {key: text[key] for key in _KEYS if key in text}]
    if any(before.get(file) != note for file, note in now.items()):
        # what files say that are not looked at from here, as another project's, is kept as long as they are there
        elsewhere = {file: note for file, note in before.items() if file not in now and os.path.lexists(file)}
        with suppress(OSError, TypeError):  # TOML's dates are no JSON
            paths.write_atomically(notes, json.dumps({**elsewhere, **now}).encode())
    return {file: mark for file, (_, mark) in now.items()}


def _read_cache(file: Path) -> dict[str, list[Any]]:
    """Return what was noted of each file: its state then, and its keys; nothing where that is not as it was written."""
    try:
        noted = dict(json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}
    fits = all(isinstance(note, list) and len(note) == 2 and isinstance(note[1], dict) for note in noted.values())
    return noted if fits else {}


def _match_variables(mark: dict[str, Any]) -> str | None:
    wanted = mark.get("detect")
    if not wanted or not isinstance(wanted, dict):
        return None
    if all(fnmatchcase(os.environ.get(name, ""), str(pattern)) for name, pattern in wanted.items()):
        return ", ".join(f"${name} is {os.environ.get(name)}" for name in wanted)
    return None


def _match_host(mark: dict[str, Any]) -> str | None:
    host, patterns = os.uname().nodename, mark.get("hosts", ())
    for pattern in patterns if isinstance(patterns, list) else ():
        if fnmatchcase(host, str(pattern)) or fnmatchcase(host.split(".")[0], str(pattern)):
            return f"host {host} matches {pattern}"
    return None
