"""Handling of standard streams that are closed, full disks, broken pipes, and encodings other than UTF-8."""

from __future__ import annotations

import codecs
import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path

from hpcrun.errors import HpcrunError

BROKEN_PIPE = 141
"""The exit code that a shell reports for a program killed by SIGPIPE."""

_closed: set[int] = set()


def _escape_unencodable(error: UnicodeError) -> tuple[str | bytes, int]:
    """Encode surrogate escapes as bytes, and escape characters that the encoding lacks (a codec error handler)."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    if "\udc80" <= character <= "\udcff":
        return bytes([ord(character) - 0xDC00]), error.start + 1
    return character.encode("ascii", "backslashreplace").decode(), error.start + 1


def require_utf8_mode() -> None:
    """Restart in Python's UTF-8 mode if the locale has a different encoding, so that files are read as UTF-8.

    Output keeps the encoding of the locale.
    """
    if sys.getfilesystemencoding() != "utf-8" and Path(sys.orig_argv[0]).name.startswith("python"):
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606 - there is no shell
    if "utf8" in sys._xoptions and "PYTHONIOENCODING" not in os.environ:  # noqa: SLF001 - a documented attribute
        import locale

        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(encoding=locale.getencoding(), errors="hpcrun.escape")


def open_closed_streams() -> None:
    """Open /dev/null for closed standard streams, so that other files do not get their file descriptors."""
    codecs.register_error("hpcrun.escape", _escape_unencodable)
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            _closed.add(descriptor)
            null_descriptor = os.open(os.devnull, os.O_RDWR)
            if null_descriptor != descriptor:
                os.dup2(null_descriptor, descriptor)
                os.close(null_descriptor)
            stream = open(descriptor, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - open until hpcrun exits
            setattr(sys, name, stream)
        if descriptor and isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="hpcrun.escape")


def require_stdout() -> None:
    """Refuse to start a command if stdout is closed.

    Raises:
        HpcrunError: stdout is closed.
    """
    if 1 in _closed:
        raise HpcrunError("stdout is closed, and hpcrun prints there", hint=">/dev/null discards its output")


def require_working_directory() -> None:
    """Refuse to run without a working directory, because arguments and site files may be relative paths.

    Raises:
        HpcrunError: The working directory was removed.
    """
    try:
        os.getcwd()  # noqa: PTH109 - Path.cwd() does the same
    except OSError as error:
        folder = os.environ.get("PWD", "the current directory")
        raise HpcrunError(
            f"the current directory does not exist: {folder}: {error.strerror}", hint="cd to another"
        ) from None


def flush(code: int | str | None, *, is_error_printed: bool = False) -> int | str | None:
    """Flush stdout and stderr now, because Python would print a traceback if flushing failed at exit.

    Args:
        code: The exit code so far.
        is_error_printed: Whether an error, such as of writing to stdout, has been printed already.

    Returns:
        The exit code, which is not 0 if stdout cannot be written.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        _discard_buffer(1)
        if isinstance(error, BrokenPipeError):
            code = BROKEN_PIPE
        else:
            code = code or 1
            with suppress(OSError):
                if not is_error_printed:
                    print(f"ERROR: cannot write to stdout: {error.strerror}", file=sys.stderr)
    try:
        sys.stderr.flush()
    except OSError:
        _discard_buffer(2)
    return code


def _discard_buffer(descriptor: int) -> None:
    """Redirect a stream to /dev/null if writing to it failed, so that flushing its buffer succeeds."""
    null_descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_descriptor, descriptor)
    os.close(null_descriptor)
