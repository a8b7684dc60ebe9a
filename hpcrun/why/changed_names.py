"""Names that releases of libraries removed or added, from the TOML tables in the folder ``changes``.

A table has one section for each library, by the name of its module, with the keys ``title`` and ``pip`` (if they differ
from the module's name), ``modules`` (other names of the module), ``older`` (how to get the library before a release, if
not by pip) and sections for the kinds of names:

- ``names``: functions, classes and modules, ``"C"`` or ``"b.C"`` for ``a.b.C`` of the module ``a``;
- ``arguments``: of functions, ``"x"``, or ``"F.x"`` if other functions have such an argument, too;
- ``attributes``: of objects, ``"x"`` or ``"Class.x"``, in which ``*`` stands for any characters.

A section of a kind has one section for each change, such as ``"removed 2.0"`` or ``"added 1.13"``, with the release.
Its keys are names, several of them with bars between them; the value is the code to write in place of the name, in
which ``{name}`` is the name; it is empty if nothing replaces the name, and an instruction if it starts with ``> ``.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from hpcrun.why.tables import read_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.why.python_error import PythonError

_NAME = re.compile(
    r"cannot import name '(?P<imported>\w+)' from (?:partially initialized module )?'(?P<source>[\w.]+)'"
    r"|[Mm]odule '?(?P<module>[\w.]+)'? has no attribute '?(?P<name>\w+)'?|No module named '(?P<missing>[\w.]+)'"
)
_OLD_NAME = re.compile(r"cannot import name '?(?P<imported>\w+)'?$|'module' object has no attribute '(?P<name>\w+)'")
"""The wordings of Python 2, and of Python 3 before 3.7, which say nothing of the module."""

_UNMISTAKABLE_LENGTH = 10  # of a name that is looked up without its module

_ALIASES = {"tf": "tensorflow", "np": "numpy", "pd": "pandas", "hvd": "horovod", "jnp": "jax.numpy", "nn": "torch.nn"}
_ATTRIBUTE = re.compile(r"'?(?P<type>[\w.]+)'? (?:object )?has no attribute '?(?P<name>\w+)'?")
_ARGUMENT = re.compile(
    r"(?:(?P<function>[\w.<>]+)\(\) )?got an unexpected keyword argument '(?P<name>\w+)'"
    r"|Keyword argument not understood:', '(?P<not_understood>\w+)'"
    r"|Unexpected keyword arguments?: `(?P<unexpected>\w+)`"
    r"|Unrecognized keyword arguments? passed to (?P<layer>\w+): \{'(?P<first>\w+)'"
)
_KERAS = re.compile(r"^tensorflow(?:\.(?:_api|v2|python))*\.keras\b")
_PACKAGE = re.compile(r".*-packages/(\w+)")
_INNER_MODULES = {"_api", "v2", "v1", "_core", "src", "python", "pytorch"}
"""Modules that are no part of a public name."""


class ChangedName(NamedTuple):
    """A name that a release of a library removed or added."""

    library: str
    title: str
    pip: str
    name: str
    is_removed: bool
    release: str
    replacement: str
    older: str

    @property
    def headline(self) -> str:
        """Describe the change."""
        if self.is_removed:
            return f"{self.title} {self.release} removed {self.name}, which the program or a package still uses"
        return f"the installed {self.title} is older than {self.release}, with which {self.name} came"

    def describe_fix(self, package: str | None) -> str:
        """Return what to do.

        Args:
            package: The package that uses the name; empty if it is the program itself, None if it is unknown.
        """
        write = f"write {self.replacement}" if self.replacement else "leave it out"
        write = self.replacement.removeprefix("> ") if self.replacement.startswith("> ") else write
        if not self.is_removed:
            is_argument = self.name.startswith("the argument ")
            other = f"; with the installed one, {write}" if self.replacement or is_argument else ""
            older = f" ({package} needs it, or take an older {package})" if package else ""
            found = "; if pip list shows a newer one, another is found first (-x PYTHONPATH= -x PYTHONNOUSERSITE=1)"
            if self.library == "python":
                return f"{self._install('>=')}{older}{other}"
            return f"upgrade it: {self._install('>=')}{older}{other}{found}"
        if package and not self.replacement.startswith("> pip"):
            return f"upgrade {package}, which was written for an older {self.title}, or {self._install('<')}"
        upgrade = "; if a package uses it (the traceback's last file), upgrade that one" if package is None else ""
        return f"{write}{upgrade}; or {self._install('<')}"

    def _install(self, relation: str) -> str:
        if self.library == "python":
            old = "before " if relation == "<" else ""
            return f"run it with a Python {old}{self.release}{'' if old else ' or newer'} (python of the site file)"
        if relation == "<" and self.older:
            return self.older
        return f"pip install {'-U ' if relation == '>=' else ''}'{self.pip}{relation}{self.release}'"


class _Entry(NamedTuple):
    names: str
    library: str
    section: dict[str, Any]
    change: str
    replacement: str


def find_change(error: str, code: str = "") -> ChangedName | None:
    """Return the change of the name that an exception's message says is missing; None if the tables do not have it.

    Args:
        error: The message, possibly with the exception's type.
        code: The lines of code that the traceback quotes last.
    """
    if match := _NAME.search(error):
        full_name = match["missing"] or f"{match['source'] or match['module']}.{match['imported'] or match['name']}"
        return _find_name(full_name, is_module=bool(match["missing"]))
    if match := _OLD_NAME.search(error):
        full_name = _read_module(match, code)
        return (
            _find_unmistakable(full_name[1:]) if full_name.startswith(".") else _find_name(full_name, is_module=False)
        )
    if match := _ARGUMENT.search(error):
        name = match["name"] or match["not_understood"] or match["unexpected"] or match["first"]
        return _find_argument(name, f"{match['function'] or match['layer'] or ''} {code}")
    if match := _ATTRIBUTE.search(error):
        return _find_attribute(match["name"], match["type"])
    return None


def describe_change(error: str, exception: PythonError | None) -> dict[str, str]:
    """Return the headline (``change``) and the fix (``write``) for a changed name; empty if it is not in the tables.

    Args:
        error: The message.
        exception: The exception with that message, if the log has its traceback.
    """
    code = f"{exception.code} {exception.raised_code}" if exception else ""
    change = find_change(error, code)
    if change is None:
        return {}
    package = _find_package(error, exception, change.library) if exception else None
    return {"change": change.headline, "write": change.describe_fix(package)}


def _find_package(error: str, exception: PythonError, library: str) -> str | None:
    """Return the package that uses a name; empty if it is the user's code, None if it is unknown."""
    if error not in exception.error or not exception.raised_in or exception.error.startswith("RuntimeError"):
        return None
    if (match := _ARGUMENT.search(error)) and f"{match[match.lastgroup or 0]}=" in exception.code.replace(" ", ""):
        return ""
    match = _PACKAGE.match(exception.raised_in)
    package = match[1] if match else ""
    return None if package in {library, "tensorflow", "keras"} else package


def _find_name(full_name: str, *, is_module: bool) -> ChangedName | None:
    library, *parts = _KERAS.sub("keras", full_name).split(".")
    tables = _load()
    key = library if any(library == known for known, _ in tables) else "python"
    if key == "python":
        parts = [library, *parts]
    parts = [part for part in parts if part not in _INNER_MODULES]
    candidates = [".".join(parts[start:]) for start in range(len(parts))]
    if is_module:  # a module is missing with all modules that it contains; its last name alone says little
        candidates = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
    for candidate in candidates:
        if entry := tables.get((key, "names"), {}).get(candidate):
            return _make(entry, ".".join([library, *parts]) if key != "python" else ".".join(parts))
    return None


def _find_unmistakable(name: str) -> ChangedName | None:
    """Return the change of a name whose module is unknown, if it is long and in the table of one library only."""
    entries = [names[name] for (_, kind), names in _load().items() if kind == "names" and name in names]
    if len(entries) != 1 or "_" not in name or len(name) < _UNMISTAKABLE_LENGTH:
        return None
    return _make(entries[0], f"{entries[0].library}.{name}")


def _read_module(match: re.Match[str], code: str) -> str:
    """Return the full name that code takes from a module, where the message has its last part only."""
    name = match["imported"] or match["name"]
    pattern = rf"from ([\w.]+) import [^#]*\b{name}\b" if match["imported"] else rf"([\w.]+)\.{name}\b"
    found = re.search(pattern, code)
    first, dot, rest = found[1].partition(".") if found else ("", "", "")
    return f"{_ALIASES.get(first, first)}{dot}{rest}.{name}"


def _find_argument(name: str, context: str) -> ChangedName | None:
    words = set(re.findall(r"\w+", context))
    for (_, kind), entries in _load().items():
        if kind != "arguments":
            continue
        for key in (*(f"{word}.{name}" for word in words), name):
            if entry := entries.get(key):
                return _make(entry, f"the argument {name}", name)
    return None


def _find_attribute(name: str, type_name: str) -> ChangedName | None:
    for (_, kind), entries in _load().items():
        if kind != "attributes":
            continue
        for key, entry in entries.items():
            pattern = key if "." in key else f"*.{key}"
            if pattern.endswith(f".{name}") and fnmatchcase(f"{type_name.rpartition('.')[2]}.{name}", pattern):
                return _make(entry, f".{name} of {type_name}", name)
    return None


def _make(entry: _Entry, name: str, short_name: str = "") -> ChangedName:
    verb, _, release = entry.change.partition(" ")
    section = entry.section
    replacement = entry.replacement.replace("{name}", short_name or name.rpartition(".")[2])
    title, pip = section.get("title", entry.library), section.get("pip", entry.library)
    older = section.get("older", {}).get(release, "")
    return ChangedName(entry.library, title, pip, name, verb == "removed", release, replacement, older)


@cache
def _load() -> dict[tuple[str, str], dict[str, _Entry]]:
    """Return the entries of each library and kind, by name."""
    tables: dict[tuple[str, str], dict[str, _Entry]] = {}
    for entry in _read():
        for library in (entry.library, *entry.section.get("modules", ())):
            kind = entry.names.partition(" ")[0]
            by_name = tables.setdefault((library, kind), {})
            for name in entry.names.partition(" ")[2].split("|"):
                by_name[name.strip()] = entry._replace(library=library)
    return tables


def _read() -> Iterator[_Entry]:
    for table in read_tables("changes/*.toml"):
        for library, section in table.items():
            for kind in ("names", "arguments", "attributes"):
                for change, entries in section.get(kind, {}).items():
                    for names, replacement in entries.items():
                        yield _Entry(f"{kind} {names}", library, section, change, replacement)
