"""What Python's usual exceptions mean, for those that no signature knows better: from ``exceptions.toml``."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path


def advise(error: str) -> str:
    """Return what an exception usually means; empty where that depends on the program.

    Args:
        error: The exception's type and message.
    """
    return next((advice for pattern, advice in _load_advice() if pattern.search(error)), "")


@cache
def _load_advice() -> tuple[tuple[re.Pattern[str], str], ...]:
    text = Path(__file__).with_name("exceptions.toml").read_text(encoding="utf-8")
    return tuple((re.compile(entry["pattern"]), entry["advice"]) for entry in tomllib.loads(text)["exception"])
