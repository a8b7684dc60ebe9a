"""Values as bash words and ``#SBATCH`` lines: the filters of templates."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from hpcrun import launchers, secrets
from hpcrun.errors import HpcrunError, sanitize
from hpcrun.job_options import STAGED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

_ESCAPED = re.compile(r"['\\]|(?<=p)(?=ackjob)|(?<=h)(?=etjob)", re.IGNORECASE)
_WIDTH = 100
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def quote(value: object) -> str:
    """Return a value as one literal bash word.

    Raises:
        HpcrunError: It contains a NUL character, which ends every argument of a program.
    """
    text = str(value)
    if "\0" in text:
        raise HpcrunError(f"{text!r} has a NUL character", hint="no variable, argument or file name can have one")
    if sanitize(text) == text:
        return shlex.quote(text)
    # In bash's $'...', or a terminal would obey the characters, and hide lines of a script that it shows.
    escaped = "".join(one if sanitize(one) == one else _escape_bytes(one) for one in re.sub(r"['\\]", r"\\\g<0>", text))
    return f"$'{escaped}'"


def _escape_bytes(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogateescape"))


def expand(value: str, default: str = "") -> str:
    """Return a value as one bash word: ``${NAME}`` and a leading ``~/`` expand, everything else is literal.

    Args:
        value: The text, such as ``${CONDA_PREFIX}/lib``.
        default: The bash operator for unset variables: ``-`` for an empty text, ``?message`` for an error.
    """
    value = f"${{HOME}}/{value[2:]}" if value.startswith("~/") else value
    parts = _VARIABLE.split(value)  # literal, name, literal, name, ..., literal
    words = [f'"${{{part}{default}}}"' if i % 2 else (quote(part) if part else "") for i, part in enumerate(parts)]
    return "".join(words) or "''"


def directive(option: str) -> str:
    """Return an sbatch option quoted for an ``#SBATCH`` line.

    sbatch reads bash's quotes, but a backslash escapes the next character in all of them, and the words ``packjob`` and
    ``hetjob`` separate the parts of a heterogeneous job even inside a value.

    Raises:
        HpcrunError: It contains a line break.
    """
    name, equals, value = option.partition("=")
    if re.search(r"[\x00-\x1f\x7f]", value):
        hint = "submit from a folder with another name" if name == "--chdir" else "leave it out"
        raise HpcrunError(f"{name}={value!r}: no #SBATCH line can have a line break or the like", hint=hint)
    escaped = _ESCAPED.sub(r"\\\g<0>", value)
    return f"{name}{equals}'{escaped}'" if equals and (escaped, quote(value)) != (value, value) else option


def word(text: str, *, staged: bool = False) -> str:
    """Return an argument, or the value of a variable, as one bash word; secrets are variables in it.

    Args:
        text: The argument.
        staged: Whether ``{staged}`` stands for the folder of the job's data on the node-local disk.
    """
    if staged and STAGED in text:
        return '"$HPCRUN_STAGED"'.join(word(part) if part else "" for part in text.split(STAGED))
    parts = secrets.PLACEHOLDER.split(text)  # literal, number, literal, number, ..., literal
    quoted = [f'"$hpcrun_secret_{part}"' if i % 2 else (quote(part) if part else "") for i, part in enumerate(parts)]
    return "".join(quoted) or "''"


def words(argv: Iterable[str], staged: Collection[str] = ()) -> str:
    """Return a command line as bash words, all literal except secrets, and ``{staged}`` if the job stages data.

    Args:
        argv: The command line.
        staged: What the job copies to the node-local disk.
    """
    return " ".join(word(text, staged=bool(staged)) for text in argv)


def wrapped(argv: Iterable[str]) -> str:
    """Return options as literal bash words on several lines; the value of an option stays on the line of the option."""
    lines: list[str] = []
    for argument in argv:
        value = quote(argument)
        fits = lines and (len(lines[-1]) + len(value) < _WIDTH or not argument.startswith("--"))
        if fits:
            lines[-1] += f" {value}"
        else:
            lines.append(value)
    return " \\\n  ".join(lines)


def launch_line(argv: Sequence[str]) -> str:
    """Return a launcher's words as bash.

    Raises:
        HpcrunError: ``launcher_args`` contains ``@rank``.
    """
    if "@rank" in argv:
        raise HpcrunError(
            "launcher_args: @rank is hpcrun's own word",
            hint="leave it out: hpcrun puts it between the launcher and the program",
        )
    return " ".join(_with_hostfile(word) for word in argv)


def _with_hostfile(text: str) -> str:
    """Return a launcher's word as bash, literal except for the path of the hostfile."""
    parts = [quote(part) if part else "" for part in text.split(launchers.HOSTFILE)]
    return f'"{launchers.HOSTFILE}"'.join(parts) or "''"


def variables(value: str) -> list[str]:
    """Return the names of the variables in a value."""
    return _VARIABLE.findall(value)
