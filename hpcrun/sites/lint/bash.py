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
    from hpcrun.sites.model import Site

_BETTER = {"LD_LIBRARY_PATH": "prepend_path.LD_LIBRARY_PATH", "XLA_FLAGS": "cuda.xla_flags"}
_ASSIGNMENT = re.compile(r"(?:^|[\s;&])(LD_LIBRARY_PATH|XLA_FLAGS)=(\S*)")
_SYNTAX_ERROR = re.compile(r"line (\d+): (.*)")
_SET_E = re.compile(r"\s*set\s+-[a-z]*e")


def joined_module_names(site: Site) -> Iterator[Finding]:
    """Warn of module names that contain several names."""
    for key, level in iterate_levels(site):
        for module in level.modules.load or ():
            if " " in module.strip():
                names = ", ".join(f'"{name}"' for name in module.split() if name not in {"module", "load"})
                says = f'modules.load has "{module}", which `module load` takes as one name'
                yield finding_at((*key, "modules", "load"), says, f"write {names}")


def variable_overwritten_in_setup(site: Site) -> Iterator[Finding]:
    """Warn of assignments that discard a variable's value, or leave a colon that adds the current directory."""
    for key, number, line in _setup_lines(site):
        for name, value in _ASSIGNMENT.findall(line):
            kept = f"${name}" in value or f"${{{name}" in value
            if f"${{{name}:+" in value or "$(" in value or (kept and name == "XLA_FLAGS"):
                continue
            says = "overwrites the value from modules and users"
            if kept:
                says = "ends with a colon if the variable was not set, which adds the current directory"
            yield finding_at(key, f"line {number} of setup: {name}={value} {says}", f"use {_BETTER[name]}")


def set_e_in_setup(site: Site) -> Iterator[Finding]:
    """Warn of ``set -e``."""
    for key, number, line in _setup_lines(site):
        if _SET_E.match(line):
            says = f"line {number} of setup: {line!r} ends the job at any failing command without a reason"
            fix = "remove it, and write COMMAND || hpcrun_fail 'REASON' for commands that must not fail"
            yield finding_at(key, says, fix)


def _setup_lines(site: Site) -> Iterator[tuple[tuple[str, ...], int, str]]:
    for key, level in iterate_levels(site):
        for number, line in enumerate(level.setup or (), 1):
            yield (*key, "setup"), number, line


def syntax_errors(site: Site) -> Iterator[Finding]:
    """Report lines that bash cannot parse."""
    for key, level in iterate_levels(site):
        for name in ("setup", "teardown"):
            yield from _find_syntax_errors((*key, name), getattr(level, name) or ())


def require_parsable(loaded_site: LoadedSite, here: Site) -> None:
    """Refuse a job if bash cannot parse the site's lines.

    Args:
        loaded_site: The site.
        here: The site's settings for the job.

    Raises:
        HpcrunError: The message names the key, its file and line, and the invalid bash line.
    """
    for name in ("setup", "teardown"):
        lines = getattr(here, name)
        key = next(
            ((*key, name) for key, level in iterate_levels(loaded_site.site) if getattr(level, name) == lines), (name,)
        )
        for finding in _find_syntax_errors(key, lines):
            where = loaded_site.find_origin(key) or f"site {loaded_site.site.name}"
            raise HpcrunError(f"{where}: {finding.what}", hint=finding.fix)


def _find_syntax_errors(key: tuple[str, ...], lines: Sequence[str]) -> Iterator[Finding]:
    if lines and (complaint := _run_bash_n("\n".join(lines) + "\n")):
        number = min(int(complaint[1]), len(lines))
        says = f"bash cannot parse line {number} of {'.'.join(key)}, {lines[number - 1]!r}: {complaint[2]}"
        yield finding_at(key, says, "correct it: every job would fail at this line", "error")


def _run_bash_n(text: str) -> re.Match[str] | None:
    command = ["bash", "-O", "extglob", "-n"]  # an earlier line may enable it
    environment = {**os.environ, "LC_ALL": "C"}  # error messages are localised
    try:
        parsed = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, timeout=10, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):  # no bash, no check
        return None
    # for an unterminated here-document bash only warns, and swallows the rest of the script
    return _SYNTAX_ERROR.search(parsed.stderr) if parsed.returncode or "here-document" in parsed.stderr else None
