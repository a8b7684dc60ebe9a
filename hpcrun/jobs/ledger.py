"""What was last said of runs, so that the next command need not find it out again.

Two files beside the index: ``ended.json`` has all there is to say of runs that ended long ago, ``last.json`` the last
known state of the others, by the run directories' names. Both may be lost, or lag behind, at any time: what they lack
is read from the run directories, or asked. So writers need no lock; each replaces a file in one step.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcrun import paths
from hpcrun.jobs import records

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from hpcrun.jobs.kinds import Object

FORMAT = 1
"""Goes up when the files' content changes; files of another format count as lost."""


@dataclass(frozen=True)
class Notes:
    """What a file says.

    Attributes:
        format: `FORMAT` of the version that wrote it.
        runs: A note of each run, by its directory's name; `hpcrun.jobs.rows` knows what one says.
    """

    format: int
    runs: Object


def _file(name: str) -> Path:
    return paths.run_index_folder().with_name(f"{name}.json")


def read(name: str) -> dict[str, Object]:
    """Return one file's notes.

    Args:
        name: ``ended`` or ``last``.
    """
    try:
        notes = records.read(_file(name), Notes)
    except records.BadRecordError:
        return {}
    runs = notes.runs if notes and notes.format == FORMAT else {}
    return {key: note for key, note in runs.items() if isinstance(note, dict)}


def change(name: str, notes: Mapping[str, Object], drop: Iterable[str] = ()) -> None:
    """Add notes to a file and take others out; where it cannot be written, nothing happens.

    Args:
        name: ``ended`` or ``last``.
        notes: The notes, by the run directories' names.
        drop: The run directories' names whose notes go.
    """
    before = read(name)
    dropped = set(drop)
    after = {key: note for key, note in {**before, **notes}.items() if key not in dropped}
    if after != before:
        with suppress(OSError):
            paths.write_atomically(_file(name), json.dumps({"format": FORMAT, "runs": after}).encode())


def clear() -> None:
    """Forget all."""
    for name in ("ended", "last"):
        with suppress(OSError):
            _file(name).unlink(missing_ok=True)
