"""The secrets of a run, in texts that its program may have printed them in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun import secrets
from hpcrun.jobs import records

if TYPE_CHECKING:
    from hpcrun.jobs.runs import Run

MIN_LENGTH = 4
"""Shorter secrets are parts of many words, and are not masked."""


def mask_secrets(text: str, run: Run) -> str:
    """Replace the values in a run's ``secrets.env`` by ``***``, in any context."""
    try:
        content = records.read_text((run.sweep or run).directory / secrets.SECRETS_FILE, "replace")
        values = secrets.parse_secrets(content)
    except (FileNotFoundError, ValueError, records.BadRecordError):
        return text
    for value in sorted(values, key=len, reverse=True):  # one may contain another
        if len(value) >= MIN_LENGTH:
            text = text.replace(value, "***")
    return text
