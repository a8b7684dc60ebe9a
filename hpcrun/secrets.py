"""Detection, masking and storage of secrets, by their names and formats.

A job's secrets are in ``secrets.env`` in its run directory, readable only by its owner. Its record and its script have
placeholders, ``<secret 1>`` and so on, which the script replaces with the values in that file.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING, Any

from hpcrun import write_access
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

SECRETS_FILE = "secrets.env"
"""The file in a run directory; the tasks of a sweep share the sweep's."""

PLACEHOLDER = re.compile(r"<secret (\d+)>")

MIN_KNOWN_LENGTH = 4
"""Minimum length of a secret that is masked wherever its text occurs."""

_PASSWORD_ENDINGS = ("PASSWORD", "PASSWD", "PASSPHRASE", "SECRET")  # also in PGPASSWORD
_TOKEN_WORDS = {
    "TOKEN", "APITOKEN", "AUTHTOKEN", "ACCESSTOKEN", "APIKEY", "SECRETKEY", "ACCESSKEY", "CREDENTIAL", "CREDENTIALS",
}  # fmt: skip
_PASS_WORD = re.compile(r"(?!BYPASS$|COMPASS$).*PASS|PWD")  # of a password (SSHPASS), if the value is not a word
_KEY_PREFIXES = {
    "API", "ACCESS", "SECRET", "PRIVATE", "AUTH", "SIGNING", "ENCRYPTION", "ACCOUNT", "MASTER", "STORAGE",
    "WANDB", "OPENAI", "ANTHROPIC", "AZURE",
}  # fmt: skip
"""Words that make a secret of a following KEY."""
_RANDOM = re.compile(r"(?=[A-Za-z+/]*\d)(?=[\d+/]*[A-Za-z])[A-Za-z0-9+/]{20,}={0,2}")
"""A value without words, as services generate it; a secret in any KEY with a name, such as KAGGLE_KEY."""
_TEXT_TOKEN_PREFIXES = {
    "PAD", "EOS", "BOS", "UNK", "CLS", "SEP", "MASK", "SPECIAL", "START", "END", "STOP", "IMAGE", "PER", "NEXT", "NUM",
}  # fmt: skip
"""Words before TOKEN where it is a token of a text."""

SECRET_PATTERN = re.compile(
    r"(?<=://)[^\s/:@'\"]{0,200}:[^\s/'\"$]{1,200}(?=@)"  # user and password in a URL; it may contain an @
    r"|(?<=://)(?=[A-Za-z_-]*\d)[\w-]{20,200}(?=@)"  # a token as user in a URL
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"  # a JSON Web Token
    r"|\b(?:gh[pousr]_|github_pat_|glpat-|hf_|sk-|[sr]k_live_|xox[abeprs]-|xapp-|AKIA|AIza|GOCSPX-|pypi-|npm_|dckr_pat_)"
    r"[A-Za-z0-9_-]{8,}"
    r"|(?<=\b[Bb]earer )(?=\S*\d)[\w.~+/=-]{8,}|(?<=\b[Aa]uthorization: Basic )[\w+/=-]{4,}"
    r"|(?<=\b[Aa]uthorization: [Tt]oken )[\w.+/=-]{8,}"  # HTTP headers
    r"|(?<=[?&]sig=)[^\s&'\"]{8,}|(?<=[?&]X-Amz-Signature=)[^\s&'\"]{8,}"
    r"|(?<=[?&]X-Goog-Signature=)[^\s&'\"]{8,}"  # signed URLs
    r"|(?<=://hooks\.slack\.com/services/)[\w/]{8,}"
)
"""Values that are secrets in any context; the prefixes are those that the services document."""

_ASSIGNMENT = re.compile(r"(?<![\w.-])(-{0,2}[A-Za-z][\w.-]{0,60})(=|[\"']?\s*[:=]\s*(?=[\"']))([\"']?)([^\s\"',;&]+)")
_OPTION = re.compile(r"(?<!\S)(--[A-Za-z][\w.-]{0,60})( )()(?!-)(\S+)")
_UNQUOTED = re.compile(
    r"^([+ -]?[ \t]*(?:export +|- +)?[A-Za-z][\w.-]{0,60})(=|: +)()(?=\S*\d)([\w+/=-]{6,})(?=\s*$)", re.MULTILINE
)  # a line of an env file or of YAML
_LITERAL = re.compile(r"(?<![\w.-])([A-Za-z][\w.-]{0,60})([\"']?\s*[:=]\s*)([\"'])([^\s\"']+)")


def is_secret(name: str, value: str) -> bool:
    """Return whether a value is a secret by its name: that of HF_TOKEN and --api-key is, that of --num-tokens is not.

    Args:
        name: The name of a variable or option.
        value: Its value; numbers, paths, references to variables and short values are no secrets.
    """
    words = [word.upper() for word in re.split(r"[_.\W]+|(?<=[a-z])(?=[A-Z])", name) if word and not word.isdigit()]
    if not words or _is_path(value) or value.lower() in {"", "true", "false", "none", "null"}:
        return False
    before, last = words[-2:-1], words[-1]
    if last.endswith(_PASSWORD_ENDINGS):
        return True
    if len(value) < 6 or re.fullmatch(r"[\d.]+|[<\[].*[>\]]", value):
        return False
    if _PASS_WORD.fullmatch(last):
        return not re.fullmatch(r"[A-Za-z_-]+", value)
    is_text_token = before and before[0] in _TEXT_TOKEN_PREFIXES
    return (last in _TOKEN_WORDS and not is_text_token) or (
        last == "KEY" and bool(before) and (before[0] in _KEY_PREFIXES or bool(_RANDOM.fullmatch(value)))
    )


def _is_path(value: str) -> bool:
    """Return whether a value is a path or a reference to a variable, not base64 that begins with a slash."""
    if value.startswith("/") and re.fullmatch(r"[A-Za-z0-9+/]{30,}={0,2}", value):
        return not all(re.search(kind, value) for kind in ("[A-Z]", "[a-z]", "[0-9]"))
    return value.startswith(("/", "~", "$", "./"))


def mask(text: str) -> str:
    """Replace secrets in a text by ``***``."""
    return _replace_values(_ASSIGNMENT, SECRET_PATTERN.sub("***", text), _mask)


def mask_command(text: str) -> str:
    """Replace secrets in a command line by ``***``, including the word after ``--password``."""
    return _replace_values(_OPTION, mask(text), _mask)


def mask_known(value: Any, known: Iterable[str]) -> Any:
    """Replace known secrets by ``***``, in any context.

    Args:
        value: A text, or tables and lists of texts; other values stay as they are.
        known: The secrets; those shorter than `MIN_KNOWN_LENGTH` are parts of many words, and stay.
    """
    found = sorted(
        (one for one in known if len(one) >= MIN_KNOWN_LENGTH), key=len, reverse=True
    )  # one may contain another
    return _replace_known(value, found) if found else value


def _replace_known(value: Any, known: list[str]) -> Any:
    if isinstance(value, dict):
        return {key: _replace_known(one, known) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_replace_known(one, known) for one in value)
    if isinstance(value, str):
        for secret in known:
            value = value.replace(secret, "***")
    return value


def mask_value(value: Any, name: str = "") -> Any:
    """Replace secrets in a value by ``***``, by its name, by the keys in it, and by their format.

    Args:
        value: A text, or tables and lists of texts; other values stay as they are.
        name: The name of the value.
    """
    if isinstance(value, dict):
        return {key: mask_value(one, str(key)) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(mask_value(one, name) for one in value)
    return ("***" if is_secret(name, value) else mask(value)) if isinstance(value, str) else value


def mask_code(text: str) -> str:
    """Replace secrets in source code by ``***``: literals, and lines of env files and YAML, by their name or format."""
    return _replace_values(_UNQUOTED, _replace_values(_LITERAL, SECRET_PATTERN.sub("***", text), _mask), _mask)


def _mask(_value: str) -> str:
    return "***"


def _replace_values(pattern: re.Pattern[str], text: str, replace: Callable[[str], str], levels: int = 3) -> str:
    """Replace the secrets among the values that a pattern finds.

    Args:
        pattern: A pattern with groups for name, separator, quote and value.
        text: The text.
        replace: Returns the replacement of a secret.
        levels: How many assignments to search in a value that is no secret, as in ``--env=HF_TOKEN=...``.
    """

    def replace_match(match: re.Match[str]) -> str:
        name, between, quote, value = match.groups()
        if is_secret(name, value):
            value = replace(value)
        elif levels and "=" in value:
            value = _replace_values(_ASSIGNMENT, value, replace, levels - 1)
        return f"{name}{between}{quote}{value}"

    return pattern.sub(replace_match, text)


class Vault:
    """The secrets of a job, in order, which are replaced by placeholders in its command line and variables."""

    def __init__(self) -> None:
        self.values: list[str] = []

    def store(self, value: str) -> str:
        """Store a secret, and return its placeholder."""
        if value not in self.values:
            self.values.append(value)
        return f"<secret {self.values.index(value) + 1}>"

    def redact(self, text: str) -> str:
        """Replace the secrets in a text by placeholders; text that looks like a placeholder is stored, too."""
        text = PLACEHOLDER.sub(lambda match: f"\0{match[1]}\0", text)
        text = SECRET_PATTERN.sub(lambda match: self.store(match[0]), text)
        return re.sub(r"\0(\d+)\0", lambda match: self.store(f"<secret {match[1]}>"), text)

    def redact_variables(self, given: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Replace the secrets in variables, or other named values, by placeholders."""
        return tuple((name, self._redact_value(name, value)) for name, value in given)

    def redact_argv(self, words: Iterable[str]) -> tuple[str, ...]:
        """Replace the secrets in a command line: in ``--name=value``, ``--name value`` and ``NAME=value``."""
        redacted, option = list[str](), ""
        for word in words:
            name, equals, value = word.partition("=")
            if option and not word.startswith("-") and is_secret(option, word):
                redacted.append(self.store(word))
            elif equals and re.fullmatch(r"[-+]*[A-Za-z][\w.-]*", name):
                redacted.append(f"{name}={self._redact_value(name, value)}")
            else:
                redacted.append(self._redact_value("", word))
            option = word if word.startswith("--") and not equals else ""
        return tuple(redacted)

    def _redact_value(self, name: str, value: str) -> str:
        """Replace a value, or the secrets in it that have a name.

        In ``--env=HF_TOKEN=...``, ``--set=ALL,API_KEY=...``, ``{"api_key": "..."}`` and a shell's ``curl --token ...``.
        """
        if is_secret(name, value):
            return self.store(value)
        if "\0" in value:
            return value  # the script cannot contain it, which rendering says
        found = list[str]()

        def take(secret: str) -> str:
            found.append(secret)
            return f"\0{len(found) - 1}\0"

        pieces = _replace_values(_ASSIGNMENT, _replace_values(_OPTION, value, take), take).split("\0")
        # literal, number, literal, number, ..., literal
        return "".join(self.store(found[int(one)]) if i % 2 else self.redact(one) for i, one in enumerate(pieces))


def write_secrets(folder: Path, values: Iterable[str]) -> None:
    """Write secrets as bash assignments to a file that only its owner can read."""
    lines = [f"hpcrun_secret_{number}={shlex.quote(value)}\n" for number, value in enumerate(values, 1)]
    if lines:
        with open(folder / SECRETS_FILE, "w", encoding="utf-8", errors="surrogateescape", opener=_open_private) as file:
            file.writelines(lines)


def parse_secrets(content: str) -> list[str]:
    """Return the values in the content of the file of `write_secrets`.

    Raises:
        ValueError: A quote is not closed.
    """
    return [word.partition("=")[2] for word in shlex.split(content)]


def restore_secrets(text: str, folder: Path) -> str:
    """Replace the placeholders in a JSON record by the secrets.

    Raises:
        HpcrunError: The secrets do not exist any more, or others can write their file.
    """
    if not PLACEHOLDER.search(text):
        return text
    import json

    who = None
    try:
        who = write_access.find_other_writer(folder / SECRETS_FILE, file_only=True)
        content = (folder / SECRETS_FILE).read_text(encoding="utf-8", errors="surrogateescape")
        values = [] if who else parse_secrets(content)
        return PLACEHOLDER.sub(lambda match: json.dumps(values[int(match[1]) - 1])[1:-1], text)
    except (OSError, ValueError, IndexError) as error:
        why = who or getattr(error, "strerror", None) or error
        what = f"the secrets of this run cannot be read: {folder / SECRETS_FILE}: {why}"
        raise HpcrunError(what, hint="submit it again, with the same -x NAME=VALUE and options") from None


def _open_private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)
