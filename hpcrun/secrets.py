"""Detection, masking and storage of secrets, which are recognized by their names and formats.

The secrets of a job are in ``secrets.env`` in the run directory, which only the owner can read. The job's record and
script contain placeholders, ``<secret 1>`` and so on, which the script replaces with the values in ``secrets.env``.
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
"""The name of the file in a run directory; the tasks of a sweep share the file of the sweep."""

PLACEHOLDER = re.compile(r"<secret (\d+)>")

MIN_KNOWN_LENGTH = 4
"""Minimum length in characters of a secret that is masked wherever it occurs."""

_PASSWORD_ENDINGS = ("PASSWORD", "PASSWD", "PASSPHRASE", "SECRET")  # at the end of a word, as in PGPASSWORD
_TOKEN_WORDS = {
    "TOKEN", "APITOKEN", "AUTHTOKEN", "ACCESSTOKEN", "APIKEY", "SECRETKEY", "ACCESSKEY", "CREDENTIAL", "CREDENTIALS",
}  # fmt: skip
_PASSWORD_NAME = re.compile(r"(?!BYPASS$|COMPASS$).*PASS|PWD")  # the value is a secret unless it has only letters
_KEY_PREFIXES = {
    "API", "ACCESS", "SECRET", "PRIVATE", "AUTH", "SIGNING", "ENCRYPTION", "ACCOUNT", "MASTER", "STORAGE",
    "WANDB", "OPENAI", "ANTHROPIC", "AZURE",
}  # fmt: skip
"""Words that make a following word KEY the name of a secret, as in API_KEY."""
_RANDOM_VALUE = re.compile(r"(?=[A-Za-z+/]*\d)(?=[\d+/]*[A-Za-z])[A-Za-z0-9+/]{20,}={0,2}")
"""Pattern of a generated value without words, which is a secret in any NAME_KEY, such as KAGGLE_KEY."""
_TEXT_TOKEN_PREFIXES = {
    "PAD", "EOS", "BOS", "UNK", "CLS", "SEP", "MASK", "SPECIAL", "START", "END", "STOP", "IMAGE", "PER", "NEXT", "NUM",
}  # fmt: skip
"""Words before TOKEN in names of text tokens, which are not secrets, as in EOS_TOKEN."""

SECRET_PATTERN = re.compile(
    r"(?<=://)[^\s/:@'\"]{0,200}:[^\s/'\"$]{1,200}(?=@)"  # user and password in a URL; the password may contain an @
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
"""Pattern of values that are secrets in any context; services document these prefixes."""

_ASSIGNMENT = re.compile(r"(?<![\w.-])(-{0,2}[A-Za-z][\w.-]{0,60})(=|[\"']?\s*[:=]\s*(?=[\"']))([\"']?)([^\s\"',;&]+)")
_OPTION = re.compile(r"(?<!\S)(--[A-Za-z][\w.-]{0,60})( )()(?!-)(\S+)")
_UNQUOTED_ASSIGNMENT = re.compile(
    r"^([+ -]?[ \t]*(?:export +|- +)?[A-Za-z][\w.-]{0,60})(=|: +)()(?=\S*\d)([\w+/=-]{6,})(?=\s*$)", re.MULTILINE
)  # a line of an env file or of YAML
_LITERAL_ASSIGNMENT = re.compile(r"(?<![\w.-])([A-Za-z][\w.-]{0,60})([\"']?\s*[:=]\s*)([\"'])([^\s\"']+)")


def is_secret(name: str, value: str) -> bool:
    """Return whether a name marks its value as a secret: HF_TOKEN and --api-key do, --num-tokens does not.

    Args:
        name: The name of a variable or option.
        value: The value; numbers, paths, references to variables and short values are not secrets.
    """
    words = [word.upper() for word in re.split(r"[_.\W]+|(?<=[a-z])(?=[A-Z])", name) if word and not word.isdigit()]
    if not words or _is_path(value) or value.lower() in {"", "true", "false", "none", "null"}:
        return False
    previous_words, last_word = words[-2:-1], words[-1]
    if last_word.endswith(_PASSWORD_ENDINGS):
        return True
    if len(value) < 6 or re.fullmatch(r"[\d.]+|[<\[].*[>\]]", value):
        return False
    if _PASSWORD_NAME.fullmatch(last_word):
        return not re.fullmatch(r"[A-Za-z_-]+", value)
    is_text_token = previous_words and previous_words[0] in _TEXT_TOKEN_PREFIXES
    return (last_word in _TOKEN_WORDS and not is_text_token) or (
        last_word == "KEY"
        and bool(previous_words)
        and (previous_words[0] in _KEY_PREFIXES or bool(_RANDOM_VALUE.fullmatch(value)))
    )


def _is_path(value: str) -> bool:
    """Return whether a value is a path or a reference to a variable; base64 may also begin with a slash."""
    if value.startswith("/") and re.fullmatch(r"[A-Za-z0-9+/]{30,}={0,2}", value):
        return not all(re.search(kind, value) for kind in ("[A-Z]", "[a-z]", "[0-9]"))
    return value.startswith(("/", "~", "$", "./"))


def mask(text: str) -> str:
    """Replace the secrets in a text by ``***``."""
    return _replace_values(_ASSIGNMENT, SECRET_PATTERN.sub("***", text), _mask)


def mask_command(text: str) -> str:
    """Replace the secrets in a command line by ``***``, including values of options, as in ``--password WORD``."""
    return _replace_values(_OPTION, mask(text), _mask)


def mask_known(value: Any, secrets: Iterable[str]) -> Any:
    """Replace known secrets in a value by ``***``, also where they are percent-encoded, as in URLs.

    Args:
        value: A text, or a table (with its keys) or list of texts; other values are not changed.
        secrets: The secrets; secrets shorter than `MIN_KNOWN_LENGTH` are ignored, because they may be parts of words.
    """
    long_secrets = {one for one in secrets if len(one) >= MIN_KNOWN_LENGTH}
    if not long_secrets:
        return value
    from urllib.parse import quote

    spellings = long_secrets | {quote(one, safe="") for one in long_secrets} | {quote(one) for one in long_secrets}
    return _replace_known(value, sorted(spellings, key=len, reverse=True))  # a secret may contain a shorter secret


def _replace_known(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, dict):
        return {_replace_known(key, secrets): _replace_known(one, secrets) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_replace_known(one, secrets) for one in value)
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, "***")
    return value


def mask_value(value: Any, name: str = "") -> Any:
    """Replace the secrets in a value by ``***``: the name of the value, its keys, or its format identify secrets.

    Args:
        value: A text, or a table or list of texts; other values are not changed.
        name: The name of the value.
    """
    if isinstance(value, dict):
        return {key: mask_value(one, str(key)) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(mask_value(one, name) for one in value)
    return ("***" if is_secret(name, value) else mask(value)) if isinstance(value, str) else value


def mask_code(text: str) -> str:
    """Replace the secrets in source code by ``***``: in literals, and in lines of env files and YAML."""
    return _replace_values(
        _UNQUOTED_ASSIGNMENT, _replace_values(_LITERAL_ASSIGNMENT, SECRET_PATTERN.sub("***", text), _mask), _mask
    )


def _mask(_value: str) -> str:
    return "***"


def _replace_values(pattern: re.Pattern[str], text: str, replace: Callable[[str], str], levels: int = 3) -> str:
    """Replace the secrets among the values that a pattern finds.

    Args:
        pattern: A pattern with groups for name, separator, quote and value.
        text: The text.
        replace: Function that returns the replacement of a secret.
        levels: Maximum depth of assignments within a value that is not a secret, as in ``--env=HF_TOKEN=...``.
    """

    def replace_match(match: re.Match[str]) -> str:
        name, separator, quote, value = match.groups()
        if is_secret(name, value):
            value = replace(value)
        elif levels and "=" in value:
            value = _replace_values(_ASSIGNMENT, value, replace, levels - 1)
        return f"{name}{separator}{quote}{value}"

    return pattern.sub(replace_match, text)


class Vault:
    """The secrets of a job, in order; placeholders replace them in the job's command line and variables."""

    def __init__(self) -> None:
        self.values: list[str] = []

    def store(self, value: str) -> str:
        """Store a secret, and return its placeholder."""
        if value not in self.values:
            self.values.append(value)
        return f"<secret {self.values.index(value) + 1}>"

    def redact(self, text: str) -> str:
        """Replace the secrets in a text, and texts in the form of a placeholder, by placeholders."""
        text = PLACEHOLDER.sub(lambda match: f"\0{match[1]}\0", text)
        text = SECRET_PATTERN.sub(lambda match: self.store(match[0]), text)
        return re.sub(r"\0(\d+)\0", lambda match: self.store(f"<secret {match[1]}>"), text)

    def redact_variables(self, variables: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Replace the secrets in variables, or other named values, by placeholders."""
        return tuple((name, self._redact_value(name, value)) for name, value in variables)

    def redact_argv(self, argv: Iterable[str]) -> tuple[str, ...]:
        """Replace the secrets in a command line: in ``--name=value``, ``--name value`` and ``NAME=value``."""
        redacted, option = list[str](), ""
        for word in argv:
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
        """Replace a value by a placeholder if it is a secret, else replace the secrets that it assigns to names.

        Examples: ``--env=HF_TOKEN=...``, ``--set=ALL,API_KEY=...``, ``{"api_key": "..."}`` and ``curl --token ...``.
        """
        if is_secret(name, value):
            return self.store(value)
        if "\0" in value:
            return value  # leave NUL to the rendering of the script, which raises an error
        secrets = list[str]()

        def collect(secret: str) -> str:
            secrets.append(secret)
            return f"\0{len(secrets) - 1}\0"

        pieces = _replace_values(_ASSIGNMENT, _replace_values(_OPTION, value, collect), collect).split("\0")
        # literal, number, literal, number, ..., literal
        return "".join(self.store(secrets[int(one)]) if i % 2 else self.redact(one) for i, one in enumerate(pieces))


def write_secrets(folder: Path, values: Iterable[str]) -> None:
    """Write secrets as bash assignments to a file that only its owner can read."""
    lines = [f"hpcrun_secret_{number}={shlex.quote(value)}\n" for number, value in enumerate(values, 1)]
    if lines:
        with open(folder / SECRETS_FILE, "w", encoding="utf-8", errors="surrogateescape", opener=_open_private) as file:
            file.writelines(lines)


def parse_secrets(content: str) -> list[str]:
    """Return the secrets in the content of a file from `write_secrets`.

    Raises:
        ValueError: A quote is not closed.
    """
    return [word.partition("=")[2] for word in shlex.split(content)]


def restore_secrets(text: str, folder: Path) -> str:
    """Replace the placeholders in a JSON record by the secrets of its run directory.

    Raises:
        HpcrunError: The file with the secrets does not exist any more, or other users can write it.
    """
    if not PLACEHOLDER.search(text):
        return text
    import json

    other_writer = None
    try:
        other_writer = write_access.find_other_writer(folder / SECRETS_FILE, file_only=True)
        content = (folder / SECRETS_FILE).read_text(encoding="utf-8", errors="surrogateescape")
        secrets = [] if other_writer else parse_secrets(content)
        return PLACEHOLDER.sub(lambda match: json.dumps(secrets[int(match[1]) - 1])[1:-1], text)
    except (OSError, ValueError, IndexError) as error:
        reason = other_writer or getattr(error, "strerror", None) or error
        message = f"the secrets of this run cannot be read: {folder / SECRETS_FILE}: {reason}"
        raise HpcrunError(message, hint="submit it again, with the same -x NAME=VALUE and options") from None


def _open_private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)
