"""``saved_model.json``, the record of the models that a run has saved."""

from __future__ import annotations

import json
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
