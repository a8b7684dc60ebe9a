"""``saved_model.json``, the record of the models that a run has saved."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

from hpcrun import permissions

if TYPE_CHECKING:
    from pathlib import Path

LAST, BEST, LABELS, RECORD = "model.keras", "best.keras", "labels.txt", "saved_model.json"


def read_record(folder: Path) -> dict[str, Any]:
    """Read ``saved_model.json`` of a run directory; return an empty dict if no model was saved.

    Args:
        folder: The run directory.
    """
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def replace_text(file: Path, text: str) -> None:
    """Replace a file atomically.

    Args:
        file: The file to replace or create, in an existing folder.
        text: The new content.

    Raises:
        OSError: The file cannot be written.
    """
    temporary_file = file.with_name(f".{file.name}")
    with open(temporary_file, "w", encoding="utf-8", opener=permissions.opener) as stream:
        stream.write(text)
    temporary_file.replace(file)


def replace_by_link(file: Path, target: Path) -> None:
    """Replace `target` atomically by a hard link to `file`, or by a copy if the file system has no hard links.

    Args:
        file: The file.
        target: The file to replace or create, in an existing folder of the same file system.

    Raises:
        OSError: The target cannot be written.
    """
    temporary_file = target.with_name(f".new.{target.name}")
    temporary_file.unlink(missing_ok=True)
    try:
        try:
            os.link(file, temporary_file)
        except OSError:
            shutil.copy(file, temporary_file)
        temporary_file.replace(target)
    finally:
        temporary_file.unlink(missing_ok=True)
