"""Texts as bytes, and their sequences for training and validation."""

from __future__ import annotations

import os
from pathlib import Path
from stat import S_ISDIR, S_ISREG

import numpy as np

from hpcrun.train import HpcrunError

BYTE_NAMES = [chr(number) if 32 < number < 127 else f"\\x{number:02x}" for number in range(256)]
_HINT = "give a file of UTF-8 text, or a folder of such files"


def read_text(source: str | None) -> np.ndarray:
    """Read a text; by default, the language reference of Python, about 370,000 bytes of English.

    Args:
        source: A file of UTF-8 text, or a folder of such files, whose hidden files are left out; None for the default.

    Returns:
        The bytes of the text, shape (n,), uint8. Files of a folder are in the order of their paths.

    Raises:
        HpcrunError: The files do not exist, cannot be read, are empty, or contain other data than text.
    """
    if source is None:
        return np.frombuffer(read_manual(), np.uint8)
    try:
        text = b"\n".join(map(read_file, find_files(Path(source).expanduser())))
    except OSError as error:
        message = f"--text: {error.filename} cannot be read: {error.strerror}"
        raise HpcrunError(message, hint=_HINT) from None
    if not text.strip():
        raise HpcrunError(f"--text={source} has no text", hint=_HINT)
    return np.frombuffer(text, np.uint8)


def read_manual() -> bytes:
    """Return the text of Python's `pydoc` about the language; each paragraph once, as topics repeat each other's."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise HpcrunError("this Python lacks pydoc_data, the default text", hint="--text FILE, your own text") from None
    paragraphs = "\n\n".join(topics.values()).split("\n\n")
    unique_paragraphs = {" ".join(paragraph.split()): paragraph.strip("\n") for paragraph in paragraphs}
    return "\n\n".join(unique_paragraphs.values()).encode()


def find_files(path: Path) -> list[Path]:
    """Return a file, or the files below a folder in the order of their paths, without hidden ones.

    Raises:
        HpcrunError: The folder has no files.
        OSError: A folder cannot be read.
    """
    if not S_ISDIR(path.stat().st_mode):
        return [path]

    def fail(error: OSError) -> None:
        raise error

    files: list[Path] = []
    for folder, subfolders, names in os.walk(path, onerror=fail):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        files += [Path(folder, name) for name in names if not name.startswith(".")]
    if not files:
        raise HpcrunError(f"--text={path}: the folder has no files", hint=_HINT)
    return sorted(files)


def read_file(file: Path) -> bytes:
    """Read a file of UTF-8 text.

    Raises:
        HpcrunError: The file is not text.
        OSError: The file cannot be read.
    """
    if not S_ISREG(file.stat().st_mode):
        raise HpcrunError(f"--text: {file} is not a regular file", hint=_HINT)
    text = file.read_bytes()
    try:
        text.decode()
    except UnicodeDecodeError as error:
        message = f"--text: {file} is not UTF-8 text: {error.reason} at byte {error.start}"
        raise HpcrunError(message, hint="iconv -t UTF-8 converts text; leave out files of other data") from None
    if b"\0" in text:
        message = f"--text: {file} is not text: it has a zero at byte {text.index(0)}"
        raise HpcrunError(message, hint=_HINT)
    return text


def split_sequences(text: np.ndarray, context: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut a text into sequences for training, and its last tenth into sequences for validation.

    Args:
        text: The bytes, shape (n,).
        context: Number of bytes of a sequence, without the last byte, which is only predicted.

    Returns:
        Sequences of training and of validation, each of shape (m, context + 1). Each sequence begins with the last
        byte of its predecessor. Up to `context` bytes at the end of both parts are left out.

    Raises:
        HpcrunError: The last tenth is shorter than a sequence.
    """
    held_out = len(text) // 10
    if held_out <= context:
        raise HpcrunError(
            f"the text has {len(text)} bytes, too few for a sequence of --context={context} in its last tenth",
            hint=f"give a text of {10 * (context + 1)} bytes"
            + (f", or --context={held_out - 1}" if held_out > 2 else ""),
        )
    parts = text[:-held_out], text[-held_out:]
    training, validation = (np.lib.stride_tricks.sliding_window_view(p, context + 1)[::context] for p in parts)
    return training, validation
