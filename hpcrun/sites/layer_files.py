"""The files of a layer, and their text for review before use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.sites.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def read_sources(folder: Path) -> dict[str, Source]:
    """Read a layer's site files and templates, by their relative paths.

    Raises:
        HpcrunError: A file cannot be read.
    """
    return {str(file.relative_to(folder)): read_source(file) for file in list_files(folder)}


def list_files(folder: Path) -> list[Path]:
    """Return a layer's site files and templates."""
    return [*sorted(folder.glob("*.toml")), *list_templates(folder)]


def list_templates(folder: Path) -> list[Path]:
    """Return a layer's templates."""
    return sorted(file for file in (folder / "templates").rglob("*") if file.is_file())


def read_source(file: Path) -> Source:
    """Read a site file or template.

    Raises:
        HpcrunError: It cannot be read.
    """
    try:
        return Source.read(file)
    except OSError as error:
        raise HpcrunError(f"{file}: {error.strerror}", hint="the file must be readable by you") from None
    except UnicodeDecodeError:
        raise HpcrunError(f"{file}: not a text file", hint="site files and templates are UTF-8") from None


def diff_texts(old: dict[str, str], new: dict[str, str]) -> Iterator[str]:
    """Yield the differences of texts in the format of ``diff -u``; for a new text all lines.

    Args:
        old: Texts by name.
        new: The same.
    """
    from difflib import unified_diff

    for name in sorted({*old, *new}):
        title = escape_invisible(name)
        if name in old and name in new:
            before, now = _lines(old[name]), _lines(new[name])  # unescaped: different texts may look equal when escaped
            yield from map(
                escape_invisible, unified_diff(before, now, f"{name} (before)", f"{name} (now)", lineterm="")
            )
            if before == now and old[name] != new[name]:
                yield f"--- {title}: only the last line's end differs"
        else:
            word, mark, text = ("new", "+", new[name]) if name in new else ("removed", "-", old[name])
            yield f"--- {title} ({word})"
            yield from (f"{mark}{escape_invisible(line)}" for line in _lines(text))


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")  # bash and TOML have no other line ends


def escape_invisible(text: str) -> str:
    r"""Escape characters of a line that move a terminal's cursor or change the direction of text.

    They become ``\x1b``, ``\u202e`` or ``\U000e0020``; an ambiguous backslash is doubled.
    """
    if text.isprintable() and "\\" not in text:
        return text
    shown = []
    for character, following in zip(text, f"{text[1:]} ", strict=True):
        is_ambiguous = character == "\\" and (following in r"\xuU" or _is_invisible(following))
        shown.append("\\\\" if is_ambiguous else _escape(character) if _is_invisible(character) else character)
    return "".join(shown)


def _is_invisible(one: str) -> bool:
    return not one.isprintable() and one != "\t"


def _escape(one: str) -> str:
    return f"\\x{ord(one):02x}" if ord(one) < 256 else one.encode("unicode_escape").decode()
