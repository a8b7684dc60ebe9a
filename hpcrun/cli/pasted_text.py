"""Detection of typographic dashes, quotes and spaces, which web pages and word processors insert into command lines."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Sequence

_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
_QUOTES = "\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb"
_SPACES = "\u00a0\u2007\u202f\u200b\u2060\ufeff"
_PASTED_CHARACTERS = re.compile(f"-*[{_DASHES}]|[{_QUOTES}]|-*[{_SPACES}]|[A-Za-z0-9./_-]+[{_SPACES}]")


def require_typed_characters(argv: Sequence[str]) -> None:
    """Reject an option or value that begins with a typographic character; arguments after ``--`` may contain any.

    Args:
        argv: The arguments of hpcrun.

    Raises:
        HpcrunError: An option or value begins with a typographic character; the hint has the corrected command line.
    """
    is_separator = [word != "-" and bool(word) and not word.strip(f"-{_DASHES}") for word in argv]
    separator_index = is_separator.index(True) if any(is_separator) else len(argv)
    wrong_word = next(
        (word for word in argv[: separator_index + 1] if _PASTED_CHARACTERS.match(word) and not Path(word).exists()),
        None,
    )
    if wrong_word is None:
        return
    characters = dict.fromkeys(character for character in wrong_word if character in _DASHES + _QUOTES + _SPACES)
    code_points = ", ".join(f"U+{ord(character):04X}" for character in characters)
    text = " ".join(
        _replace_typographic(word) if number != separator_index else "--" for number, word in enumerate(argv)
    )
    try:
        line = shlex.join(["hpcrun", *shlex.split(text)])
    except ValueError:  # an unclosed quote
        line = f"hpcrun {text}"
    raise HpcrunError(
        f"{wrong_word!r} has characters of a web page or word processor ({code_points})", hint=f"type them anew: {line}"
    )


def _replace_typographic(word: str) -> str:
    """Replace typographic characters in an argument by ASCII; quote an argument without them for a shell."""
    if not _PASTED_CHARACTERS.match(word) and not set(word) & set(_QUOTES):
        return shlex.quote(word)
    dashes = re.match(f"[-{_DASHES}]*", word)
    name = word[dashes.end() if dashes else 0 :]
    start = "" if not dashes or not dashes[0] else "-" if len(name.partition("=")[0]) == 1 else "--"
    name = re.sub(f"[{_DASHES}]", "-", name)
    return start + re.sub(f"[{_QUOTES}]", '"', re.sub(f"[{_SPACES}]+", " ", name))
