"""The filters of templates, which quote values for bash and for ``#SBATCH`` lines."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from hpcrun import launchers, secrets
from hpcrun.errors import HpcrunError, sanitize
from hpcrun.job_options import STAGED_PLACEHOLDER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

_SBATCH_SPECIAL = re.compile(r"['\\]|(?<=p)(?=ackjob)|(?<=h)(?=etjob)", re.IGNORECASE)
_MAX_LINE_LENGTH = 100
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def quote(value: object) -> str:
    """Quote a value as one literal bash word.

    Raises:
        HpcrunError: The value contains a NUL character, which no argument of a program can contain.
    """
    text = str(value)
    if "\0" in text:
        raise HpcrunError(f"{text!r} has a NUL character", hint="no variable, argument or file name can contain NUL")
    if sanitize(text) == text:
        return shlex.quote(text)
    # bash's $'...' escapes control characters, with which a terminal could hide lines of a script.
    escaped_text = "".join(
        one if sanitize(one) == one else _escape_bytes(one) for one in re.sub(r"['\\]", r"\\\g<0>", text)
    )
    return f"$'{escaped_text}'"


def _escape_bytes(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogateescape"))


def expand(value: str, default: str = "") -> str:
    """Quote a value as one bash word, in which only ``${NAME}`` and a leading ``~/`` are expanded.

    Args:
        value: The value, such as ``${CONDA_PREFIX}/lib``.
        default: The bash operator for unset variables: ``-`` for an empty text, ``?MESSAGE`` for an error.
    """
    value = f"${{HOME}}/{value[2:]}" if value.startswith("~/") else value
    parts = _VARIABLE.split(value)  # literal, name, literal, name, ..., literal
    words = [f'"${{{part}{default}}}"' if i % 2 else (quote(part) if part else "") for i, part in enumerate(parts)]
    return "".join(words) or "''"


def quote_directive(option: str) -> str:
    """Quote an sbatch option for an ``#SBATCH`` line.

    sbatch parses quotes as bash does, except that a backslash escapes the next character in all quotes, and that the
    words ``packjob`` and ``hetjob`` separate the parts of a heterogeneous job even inside a value.

    Raises:
        HpcrunError: The value contains a line break or another control character.
    """
    name, separator, value = option.partition("=")
    if re.search(r"[\x00-\x1f\x7f]", value):
        hint = "submit from a folder with another name" if name == "--chdir" else "leave it out"
        raise HpcrunError(f"{name}={value!r}: an #SBATCH line cannot contain control characters", hint=hint)
    escaped_text = _SBATCH_SPECIAL.sub(r"\\\g<0>", value)
    return (
        f"{name}{separator}'{escaped_text}'" if separator and (escaped_text, quote(value)) != (value, value) else option
    )


def quote_word(text: str, *, has_staged_data: bool = False) -> str:
    """Quote an argument or the value of a variable as one bash word; placeholders for secrets become bash variables.

    Args:
        text: The argument or value.
        has_staged_data: Whether ``{staged}`` stands for the folder of the job's data on the node-local disk.
    """
    if has_staged_data and STAGED_PLACEHOLDER in text:
        return '"$HPCRUN_STAGED"'.join(quote_word(part) if part else "" for part in text.split(STAGED_PLACEHOLDER))
    parts = secrets.PLACEHOLDER.split(text)  # literal, number, literal, number, ..., literal
    quoted_parts = [
        f'"$hpcrun_secret_{part}"' if i % 2 else (quote(part) if part else "") for i, part in enumerate(parts)
    ]
    return "".join(quoted_parts) or "''"


def quote_words(argv: Iterable[str], staged_paths: Collection[str] = ()) -> str:
    """Quote a command line as bash words, which are literal except for secrets and ``{staged}``.

    Args:
        argv: The command line.
        staged_paths: The paths that the job copies to the node-local disk; if empty, ``{staged}`` is literal.
    """
    return " ".join(quote_word(text, has_staged_data=bool(staged_paths)) for text in argv)


def wrap_options(argv: Iterable[str]) -> str:
    """Quote options as literal bash words on several lines; an option and its value are on the same line."""
    lines: list[str] = []
    for argument in argv:
        value = quote(argument)
        fits_on_line = lines and (len(lines[-1]) + len(value) < _MAX_LINE_LENGTH or not argument.startswith("--"))
        if fits_on_line:
            lines[-1] += f" {value}"
        else:
            lines.append(value)
    return " \\\n  ".join(lines)


def launch_line(argv: Sequence[str]) -> str:
    """Quote the words of a launch command for bash.

    Raises:
        HpcrunError: ``launcher_args`` contains ``@rank``.
    """
    if "@rank" in argv:
        raise HpcrunError(
            "launcher_args: @rank is reserved",
            hint="leave it out: hpcrun puts it between the launcher and the program",
        )
    return " ".join(_quote_except_hostfile(word) for word in argv)


def _quote_except_hostfile(text: str) -> str:
    """Quote a word of a launch command, which is literal except for the path of the hostfile."""
    parts = [quote(part) if part else "" for part in text.split(launchers.HOSTFILE)]
    return f'"{launchers.HOSTFILE}"'.join(parts) or "''"


def list_variables(value: str) -> list[str]:
    """Return the names of the variables ``${NAME}`` in a value."""
    return _VARIABLE.findall(value)
