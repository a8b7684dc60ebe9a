"""``saved_model.json``: which models a run has saved."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hpcrun import permissions

if TYPE_CHECKING:
    from pathlib import Path

LAST, BEST, LABELS, RECORD = "model.keras", "best.keras", "labels.txt", "saved_model.json"


def read_record(folder: Path) -> dict[str, Any]:
    """Return what ``saved_model.json`` of a run directory says; an empty dict if no model was saved.

    Args:
        folder: The run directory.
    """
    try:
        found = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def replace_text(file: Path, text: str) -> None:
    """Replace a file atomically.

    Args:
        file: The file, in a folder that exists.
        text: Its new text.

    Raises:
        OSError: It cannot be written.
    """
    new = file.with_name(f".{file.name}")
    with open(new, "w", encoding="utf-8", opener=permissions.opener) as opened:
        opened.write(text)
    new.replace(file)
