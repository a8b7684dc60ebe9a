"""What looks like a secret: one table of names and values, for all that is kept, shown and warned of.

A job's secrets lie in ``secrets.env`` in its run directory, for its owner alone. Its record and its script have
placeholders, ``<secret 1>`` and so on, which the script replaces by what that file says.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING, Any

from hpcrun import owners
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FILE = "secrets.env"
"""The file in a run directory; of a sweep, in the sweep's."""

PLACEHOLDER = re.compile(r"<secret (\d+)>")

_PASSWORD = {"PASSWORD", "PASSWD", "PASSPHRASE", "SECRET"}
_TOKEN = {"TOKEN", "APIKEY", "CREDENTIAL", "CREDENTIALS"}
_KEY = {"API", "ACCESS", "SECRET", "PRIVATE", "AUTH", "SIGNING", "ENCRYPTION"}
"""Words before KEY."""
_OF_TEXT = {
    "PAD", "EOS", "BOS", "UNK", "CLS", "SEP", "MASK", "SPECIAL", "START", "END", "STOP", "IMAGE", "PER", "NEXT", "NUM",
}  # fmt: skip
"""Words before TOKEN where it is a piece of a text."""

VALUE = re.compile(
    r"(?<=://)[^\s/:@'\"]{0,200}:[^\s/@'\"$]{1,200}(?=@)"  # the user and password of a URL
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"  # a JSON Web Token
    r"|\b(?:gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox[abp]-|AKIA|pypi-)[A-Za-z0-9_-]{8,}"
)
"""What is a secret wherever it stands; prefixes as the services document them."""

_ASSIGNED = re.compile(r"(?<![\w.-])(-{0,2}[A-Za-z][\w.-]{0,60})(=|[\"']?\s*[:=]\s*(?=[\"']))([\"']?)([^\s\"',;&]+)")
_OPTION = re.compile(r"(?<!\S)(--[A-Za-z][\w.-]{0,60})( )()(?!-)(\S+)")
_LITERAL = re.compile(r"(?<![\w.-])([A-Za-z][\w.-]{0,60})([\"']?\s*[:=]\s*)([\"'])([^\s\"']+)")


def named(name: str, value: str) -> bool:
    """Return whether a value of such a name is a secret: of HF_TOKEN and --api-key, and not of --num-tokens.

    Args:
        name: A variable's or an option's.
        value: Numbers, paths, names of variables and what is too short for one are none.
    """
    words = [word.upper() for word in re.split(r"[_.\W]+|(?<=[a-z])(?=[A-Z])", name) if word]
    if not words or value.startswith(("/", "~", "$", "./")) or value.lower() in {"", "true", "false", "none", "null"}:
        return False
    before, last = words[-2:-1], words[-1]
    if last in _PASSWORD:
        return True
    if len(value) < 6 or re.fullmatch(r"[\d.]+|[<\[].*[>\]]", value):
        return False
    of_text = before and before[0] in _OF_TEXT
    return (last in _TOKEN and not of_text) or (last == "KEY" and bool(before) and before[0] in _KEY)


def mask(text: str) -> str:
    """Return a text for people in which secrets are ``***``."""
    return _ASSIGNED.sub(_masked, VALUE.sub("***", text))


def mask_command(text: str) -> str:
    """Return a command line in which secrets are ``***``, also behind ``--password`` as a word of their own."""
    return _OPTION.sub(_masked, mask(text))


def mask_value(value: Any, name: str = "") -> Any:
    """Return a value in which secrets are ``***``: by its name, by the keys in it, or by what it is.

    Args:
        value: A text, or tables and lists of them; what is neither stays as it is.
        name: Its own name.
    """
    if isinstance(value, dict):
        return {key: mask_value(one, str(key)) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(mask_value(one, name) for one in value)
    return ("***" if named(name, value) else mask(value)) if isinstance(value, str) else value


def mask_code(text: str) -> str:
    """Return source code in which secrets are ``***``: those that look so, and literals of such names."""
    return _LITERAL.sub(_masked, VALUE.sub("***", text))


def _masked(found: re.Match[str]) -> str:
    name, between, quote, value = found.groups()
    return f"{name}{between}{quote}***" if named(name, value) and value != "***" else found[0]


class Vault:
    """The secrets of a job, in order; what is taken out of its words gets placeholders."""

    def __init__(self) -> None:
        self.values: list[str] = []

    def keep(self, value: str) -> str:
        """Keep a secret, and return its placeholder."""
        if value not in self.values:
            self.values.append(value)
        return f"<secret {self.values.index(value) + 1}>"

    def hide(self, text: str) -> str:
        """Return a text without secrets, and without what only looks like a placeholder."""
        text = PLACEHOLDER.sub(lambda found: f"\0{found[1]}\0", text)
        text = VALUE.sub(lambda found: self.keep(found[0]), text)
        return re.sub(r"\0(\d+)\0", lambda found: self.keep(f"<secret {found[1]}>"), text)

    def variables(self, given: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Return variables, or other named values, without secrets."""
        return tuple((name, self.keep(value) if named(name, value) else self.hide(value)) for name, value in given)

    def argv(self, words: Iterable[str]) -> tuple[str, ...]:
        """Return a command line without secrets: of ``--name=value``, ``--name value`` and ``NAME=value``."""
        found, option = list[str](), ""
        for word in words:
            name, equals, value = word.partition("=")
            if option and not word.startswith("-") and named(option, word):
                found.append(self.keep(word))
            elif equals and re.fullmatch(r"[-+]*[A-Za-z][\w.-]*", name) and named(name, value):
                found.append(f"{name}={self.keep(value)}")
            else:
                found.append(self.hide(word))
            option = word if word.startswith("--") and not equals else ""
        return tuple(found)


def write(folder: Path, values: Iterable[str]) -> None:
    """Write secrets where bash and `read` find them, for their owner alone."""
    lines = [f"hpcrun_secret_{number}={shlex.quote(value)}\n" for number, value in enumerate(values, 1)]
    if lines:
        with open(folder / FILE, "w", encoding="utf-8", errors="surrogateescape", opener=_own) as file:
            file.writelines(lines)


def restored(text: str, folder: Path) -> str:
    """Return a JSON text of a record with its secrets in place of the placeholders.

    Raises:
        HpcrunError: They are not there any more, or somebody else's.
    """
    if not PLACEHOLDER.search(text):
        return text
    import json

    who = None
    try:
        who = owners.writer(folder / FILE, itself=True)
        content = (folder / FILE).read_text(encoding="utf-8", errors="surrogateescape")
        values = [] if who else [word.partition("=")[2] for word in shlex.split(content)]
        return PLACEHOLDER.sub(lambda found: json.dumps(values[int(found[1]) - 1])[1:-1], text)
    except (OSError, ValueError, IndexError) as error:
        why = who or getattr(error, "strerror", None) or error
        what = f"the secrets of this run are not to be had: {folder / FILE}: {why}"
        raise HpcrunError(what, hint="submit it anew, with -x NAME=VALUE and options as you did then") from None


def _own(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)
