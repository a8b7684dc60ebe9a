"""Standard input, output and errors, whatever a shell has made of them: closed, full, without a reader, or ASCII."""

from __future__ import annotations

import codecs
import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path

from hpcrun.errors import HpcrunError

BROKEN_PIPE = 141
"""The exit code of a program that SIGPIPE ended, as a shell tells it."""

_closed: set[int] = set()


def _spelled(error: UnicodeError) -> tuple[str | bytes, int]:
    """Write bytes of file names and arguments as they are, and spell out what the encoding has no character for."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    one = error.object[error.start]
    if "\udc80" <= one <= "\udcff":
        return bytes([ord(one) - 0xDC00]), error.start + 1
    return one.encode("ascii", "backslashreplace").decode(), error.start + 1


def speak_utf8() -> None:
    """Begin anew in Python's UTF-8 mode, where the locale has another encoding: files and commands speak UTF-8.

    What is printed is in the locale's encoding all the same.
    """
    if sys.getfilesystemencoding() != "utf-8" and Path(sys.orig_argv[0]).name.startswith("python"):
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606 - there is no shell
    if "utf8" in sys._xoptions and "PYTHONIOENCODING" not in os.environ:  # noqa: SLF001 - it is documented
        import locale

        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(encoding=locale.getencoding(), errors="hpcrun.spelled")


def open_closed() -> None:
    """Put /dev/null where a standard stream is closed: the next file that is opened would take its place."""
    codecs.register_error("hpcrun.spelled", _spelled)
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            _closed.add(number)
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - until we end
            setattr(sys, name, stream)
        if number and isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="hpcrun.spelled")


def require_stdout() -> None:
    """Make sure that there is a stdout, before anything is done of which nobody would hear.

    Raises:
        HpcrunError: It is closed.
    """
    if 1 in _closed:
        raise HpcrunError("stdout is closed, and hpcrun prints there", hint=">/dev/null throws its output away")


def require_folder() -> None:
    """Make sure that there is a current folder: arguments and site files are looked for from there.

    Raises:
        HpcrunError: It was removed.
    """
    try:
        os.getcwd()  # noqa: PTH109 - Path.cwd() does the same
    except OSError as error:
        where = os.environ.get("PWD", "the current folder")
        raise HpcrunError(f"the current folder is not there: {where}: {error.strerror}", hint="cd to another") from None


def flushed(code: int | str | None) -> int | str | None:
    """Write what was printed and is not yet written; Python would do it later, where its failure is a traceback.

    Args:
        code: The exit code so far.

    Returns:
        The exit code.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        null = os.open(os.devnull, os.O_WRONLY)  # what is left goes there
        os.dup2(null, 1)
        os.close(null)
        if isinstance(error, BrokenPipeError):
            code = BROKEN_PIPE
        else:
            code = code or 1
            print(f"ERROR: stdout cannot be written to: {error.strerror}", file=sys.stderr)
    with suppress(OSError):
        sys.stderr.flush()
    return code
