"""Site files of other versions of hpcrun: renamed and removed keys, and the schema that a file is written for."""

from __future__ import annotations

import tomllib
import warnings
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from hpcrun.errors import HpcrunError
from hpcrun.sites.lines import line_of
from hpcrun.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Key = tuple[str, ...]

SCHEMA = 1
"""The newest schema that this hpcrun reads: raised where an older hpcrun would misread a file, not for a new key."""


@dataclass(frozen=True)
class Deprecation:
    """A key that site files had.

    Attributes:
        old: The key's path; ``*`` stands for any name, as of a partition.
        new: The key that has its value today, with as many ``*``; None where nothing has.
        since: The version of hpcrun that has done without it.
        why: What was wrong with it, for people.
    """

    old: Key
    new: Key | None
    since: str
    why: str

    def becomes(self, written: Key) -> Key | None:
        """Return the key of today for one that fits `old`."""
        names = iter([part for part, pattern in zip(written, self.old, strict=True) if pattern == "*"])
        return self.new and tuple(next(names) if part == "*" else part for part in self.new)


DEPRECATIONS = [
    Deprecation(
        ("scratch",),
        ("local_scratch",),
        "0.1",
        "clusters call the file system that nodes share scratch, and this is each node's own",
    ),
    Deprecation(
        ("partitions", "*", "gpu_type"),
        ("partitions", "*", "gpu", "type"),
        "0.1",
        "a partition may have any key of the table gpu",
    ),
]
"""Keys that were renamed or removed; `hpcrun site upgrade` rewrites files by this table."""


def spelled(values: dict[str, Any], pattern: Key, above: Key = ()) -> Iterator[Key]:
    """Yield the keys of a file's values that fit a pattern."""
    for name in list(values) if pattern[0] == "*" else [pattern[0]]:
        if name not in values:
            continue
        if len(pattern) == 1:
            yield (*above, name)
        elif isinstance(values[name], dict):
            yield from spelled(values[name], pattern[1:], (*above, name))


def moves(values: dict[str, Any]) -> list[tuple[Deprecation, Key, Key | None]]:
    """Return which keys of a file's values are deprecated: what says so, the key, and the key of today."""
    return [(one, key, one.becomes(key)) for one in DEPRECATIONS for key in spelled(values, one.old)]


@cache
def _moves_of(text: str, _table: tuple[Deprecation, ...]) -> list[tuple[Deprecation, Key, Key | None]]:
    """Return what `moves` does of a file's text, which is asked for once for each of its keys."""
    return moves(tomllib.loads(text))


def where(file: Path, key: Key) -> str:
    """Return ``file:line`` of a key of today's, which the file may have under an older name."""
    text = file.read_text()
    for _, old, new in _moves_of(text, tuple(DEPRECATIONS)):
        if new and key[: len(new)] == new:
            key = (*old, *key[len(new) :])
            break
    return f"{file}:{line_of(text, key)}"


def modern(values: dict[str, Any], file: Path | None = None) -> dict[str, Any]:
    """Return values with the keys of today; a person is told of others, once.

    Args:
        values: What a file says.
        file: The file, where anybody can change it.

    Raises:
        HpcrunError: It is written for a newer hpcrun, or has a key under both of its names.
    """
    _check_schema(values, file)
    moved = moves(values)
    values = deepcopy(values) if moved else dict(values)
    values.pop("schema", None)
    for deprecation, old, new in moved:
        table = _table(values, old)
        if new:
            target = _table(values, new)
            if new[-1] in target:
                _refuse_both(file, old, new)
            target[new[-1]] = table[old[-1]]
        del table[old[-1]]
        if file:
            _tell(file, deprecation, old, new)
    return values


def _table(values: dict[str, Any], key: Key) -> dict[str, Any]:
    """Return the table that a key is in, made where it is not there."""
    for part in key[:-1]:
        below = values.setdefault(part, {})
        if not isinstance(below, dict):
            return {}  # not a table: the validation has more to say of it
        values = below
    return values


def _check_schema(values: dict[str, Any], file: Path | None) -> None:
    schema = values.get("schema", 1)
    at = f"{where(file, ('schema',))}: schema = {schema!r}" if file else f"schema = {schema!r}"
    if type(schema) is not int or schema < 1:
        raise HpcrunError(f"{at}: must be a whole number, at least 1", hint=f"schema = {SCHEMA}, or leave it out")
    if schema > SCHEMA:
        raise HpcrunError(
            f"{at}: the file is written for a newer hpcrun; {__version__} reads schema {SCHEMA} and older",
            hint="pip install --upgrade hpcrun-slurm",
        )


def _refuse_both(file: Path | None, old: Key, new: Key) -> None:
    at = f"{file}:{line_of(file.read_text(), old)}: " if file else ""
    message = f"{at}{'.'.join(old)} is the old name of {'.'.join(new)}, and both are set"
    raise HpcrunError(message, hint=f"remove {'.'.join(old)}")


def _tell(file: Path, deprecation: Deprecation, old: Key, new: Key | None) -> None:
    name = ".".join(old)
    now = f"{name} is now {'.'.join(new)}" if new else f"{name} has no effect any more"
    at = f"{file}:{line_of(file.read_text(), old)}"
    text = f"{at}: {now} (since hpcrun {deprecation.since}: {deprecation.why}); hpcrun site upgrade {file}"
    warnings.warn(text, FutureWarning, stacklevel=2)
