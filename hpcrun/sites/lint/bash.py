"""Checks of the bash lines of a site."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.sites.lint.levels import finding_at, iterate_levels

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpcrun.finding import Finding
    from hpcrun.sites.loader import LoadedSite
    from hpcrun.sites.site_model import Site

_BETTER_KEYS = {"LD_LIBRARY_PATH": "prepend_path.LD_LIBRARY_PATH", "XLA_FLAGS": "cuda.xla_flags"}
_ASSIGNMENT = re.compile(r"(?:^|[\s;&])(LD_LIBRARY_PATH|XLA_FLAGS)=(\S*)")
_SYNTAX_ERROR = re.compile(r"line (\d+): (.*)")
_SET_E = re.compile(r"\s*set\s+-[a-z]*e")


def joined_module_names(site: Site) -> Iterator[Finding]:
    """Warn of an element of ``modules.load`` that contains several module names."""
    for key, level in iterate_levels(site):
        for module in level.modules.load or ():
            if " " in module.strip():
                names = ", ".join(f'"{name}"' for name in module.split() if name not in {"module", "load"})
                problem = f'modules.load has "{module}", which `module load` takes as one name'
                yield finding_at((*key, "modules", "load"), problem, f"write {names}")


def variable_overwritten_in_setup(site: Site) -> Iterator[Finding]:
    """Warn of assignments that discard a variable's value, or add the current directory by a colon at the end."""
    for key, number, line in _setup_lines(site):
        for name, value in _ASSIGNMENT.findall(line):
            keeps_value = f"${name}" in value or f"${{{name}" in value
            if f"${{{name}:+" in value or "$(" in value or (keeps_value and name == "XLA_FLAGS"):
                continue
            problem = "overwrites the value from modules and users"
            if keeps_value:
                problem = "ends with a colon if the variable was not set, which adds the current directory"
            yield finding_at(key, f"line {number} of setup: {name}={value} {problem}", f"use {_BETTER_KEYS[name]}")


def set_e_in_setup(site: Site) -> Iterator[Finding]:
    """Warn of ``set -e`` in ``setup``."""
    for key, number, line in _setup_lines(site):
        if _SET_E.match(line):
            problem = f"line {number} of setup: {line!r} ends the job at any failing command without a reason"
            fix = "remove it, and write COMMAND || hpcrun_fail 'REASON' for commands that must not fail"
            yield finding_at(key, problem, fix)


def _setup_lines(site: Site) -> Iterator[tuple[tuple[str, ...], int, str]]:
    for key, level in iterate_levels(site):
        for number, line in enumerate(level.setup or (), 1):
            yield (*key, "setup"), number, line


def syntax_errors(site: Site) -> Iterator[Finding]:
    """Report lines of ``setup`` and ``teardown`` that bash cannot parse."""
    for key, level in iterate_levels(site):
        for name in ("setup", "teardown"):
            yield from _find_syntax_errors((*key, name), getattr(level, name) or ())


def require_parsable(loaded_site: LoadedSite, resolved_site: Site) -> None:
    """Refuse a job if bash cannot parse ``setup`` or ``teardown`` of its site.

    Args:
        loaded_site: The site.
        resolved_site: The site, resolved for the job.

    Raises:
        HpcrunError: Bash cannot parse a line; the message contains the line, its key, and the key's file and line
            number.
    """
    for name in ("setup", "teardown"):
        lines = getattr(resolved_site, name)
        key = next(
            ((*key, name) for key, level in iterate_levels(loaded_site.site) if getattr(level, name) == lines), (name,)
        )
        for finding in _find_syntax_errors(key, lines):
            location = loaded_site.find_origin(key) or f"site {loaded_site.site.name}"
            raise HpcrunError(f"{location}: {finding.what}", hint=finding.fix)


def _find_syntax_errors(key: tuple[str, ...], lines: Sequence[str]) -> Iterator[Finding]:
    if lines and (complaint := _run_bash_n("\n".join(lines) + "\n")):
        line_number = min(int(complaint[1]), len(lines))
        problem = f"bash cannot parse line {line_number} of {'.'.join(key)}, {lines[line_number - 1]!r}: {complaint[2]}"
        yield finding_at(key, problem, "correct it: every job would fail at this line", "error")


def _run_bash_n(text: str) -> re.Match[str] | None:
    command = ["bash", "-O", "extglob", "-n"]  # enable extglob, as an earlier line of the site may do
    environment = {**os.environ, "LC_ALL": "C"}  # error messages are localised
    try:
        result = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, timeout=10, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):  # skip the check if bash is not installed
        return None
    # for an unterminated here-document bash only warns, and swallows the rest of the script
    return _SYNTAX_ERROR.search(result.stderr) if result.returncode or "here-document" in result.stderr else None
