"""The files of a layer, and their text for review before use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.sites.source import SiteSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def read_sources(folder: Path) -> dict[str, SiteSource]:
    """Read a layer's site files and templates, by their relative paths.

    Raises:
        HpcrunError: One of the files cannot be read.
    """
    return {str(file.relative_to(folder)): read_source(file) for file in list_files(folder)}


def list_files(folder: Path) -> list[Path]:
    """Return a layer's site files and templates."""
    return [*sorted(folder.glob("*.toml")), *list_templates(folder)]


def list_templates(folder: Path) -> list[Path]:
    """Return a layer's templates."""
    return sorted(file for file in (folder / "templates").rglob("*") if file.is_file())


def read_source(file: Path) -> SiteSource:
    """Read a site file or template.

    Raises:
        HpcrunError: The file cannot be read, or is not UTF-8.
    """
    try:
        return SiteSource.read(file)
    except OSError as error:
        raise HpcrunError(f"{file}: {error.strerror}", hint="the file must be readable by you") from None
    except UnicodeDecodeError:
        raise HpcrunError(f"{file}: not a text file", hint="site files and templates are UTF-8") from None


def diff_texts(old_texts: dict[str, str], new_texts: dict[str, str]) -> Iterator[str]:
    """Yield the differences between texts in the format of ``diff -u``, and all lines of new and removed texts.

    Args:
        old_texts: Old texts by file name.
        new_texts: New texts by file name.
    """
    from difflib import unified_diff

    for name in sorted({*old_texts, *new_texts}):
        title = escape_invisible(name)
        if name in old_texts and name in new_texts:
            old_lines, new_lines = (
                _split_lines(old_texts[name]),
                _split_lines(new_texts[name]),
            )  # compare unescaped texts: different texts may look equal when escaped
            yield from map(
                escape_invisible, unified_diff(old_lines, new_lines, f"{name} (before)", f"{name} (now)", lineterm="")
            )
            if old_lines == new_lines and old_texts[name] != new_texts[name]:
                yield f"--- {title}: only the last line's end differs"
        else:
            label, prefix, text = (
                ("new", "+", new_texts[name]) if name in new_texts else ("removed", "-", old_texts[name])
            )
            yield f"--- {title} ({label})"
            yield from (f"{prefix}{escape_invisible(line)}" for line in _split_lines(text))


def _split_lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")  # split only at line ends of bash and TOML


def escape_invisible(text: str) -> str:
    r"""Escape characters of a line that move a terminal's cursor or change the direction of text.

    An escaped character is written as ``\x1b``, ``\u202e`` or ``\U000e0020``; an ambiguous backslash is doubled.
    """
    if text.isprintable() and "\\" not in text:
        return text
    escaped_parts = []
    for character, following in zip(text, f"{text[1:]} ", strict=True):
        is_ambiguous = character == "\\" and (following in r"\xuU" or _is_invisible(following))
        escaped_parts.append(
            "\\\\" if is_ambiguous else _escape_character(character) if _is_invisible(character) else character
        )
    return "".join(escaped_parts)


def _is_invisible(character: str) -> bool:
    return not character.isprintable() and character != "\t"


def _escape_character(character: str) -> str:
    return f"\\x{ord(character):02x}" if ord(character) < 256 else character.encode("unicode_escape").decode()
