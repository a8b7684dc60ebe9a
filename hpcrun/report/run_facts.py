"""The recorded values of a run by section: inputs (request, code, environment) and outcome."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from hpcrun.jobs import safe_reading
from hpcrun.jobs.run_files import GitRecord, Result
from hpcrun.jobs.run_secrets import mask_secrets
from hpcrun.jobs.states import state_from_record
from hpcrun.provenance.record import FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hpcrun.jobs.record_validation import Record
    from hpcrun.jobs.runs import Run

    Facts = dict[str, dict[str, object]]

OUTCOME_SECTIONS = ("outcome", "result", "last epoch")
"""The sections with the outcome of a run; all other sections contain inputs."""

OPTIONAL_SECTIONS = ("code", "versions", "packages", "modules")
"""The sections that a run lacks before its job has started, or if its code is in no Git repository."""

NOT_RECORDED = "not recorded"
"""The placeholder for a value that is not recorded, but should be; two placeholders count as different."""

MAX_CHARACTERS = 1000
"""Maximum length of a value; longer values are truncated."""

_KEYS_OF_OTHER_SECTIONS = {
    "name", "site", "resources", "argv", "environment", "run_dir", "template_folders", "python", "values", "tasks",
    "max_parallel",
}  # fmt: skip
_OPTION = re.compile(r"(--?[A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)


def collect_facts(run: Run) -> Facts:
    """Return the recorded values of a run by section and name, without unset values.

    Sections in `OPTIONAL_SECTIONS` are present only if the run has a record of them, which may be empty.

    Paths in the run directory become ``RUN/...``, because they differ between all runs. The job's secrets become
    ``***``.

    Args:
        run: The run.
    """
    spec = run.spec
    result = run.result() or Result()
    sections: dict[str, Mapping[str, object] | None] = {
        "outcome": _describe_outcome(run),
        "result": {key: value for key, value in result.all_values.items() if key != "versions"},
        "last epoch": run.last_epoch().all_values,
        "arguments": parse_arguments(spec.argv, spec.python),
        "resources": spec.resources.all_values,
        "job": {key: value for key, value in spec.all_values.items() if key not in _KEYS_OF_OTHER_SECTIONS},
        "environment": dict(spec.environment),
        "site": flatten(spec.site.all_values),
        "code": _describe_code(run),
        "versions": result.versions,
        # after the start of a job, the file contains at least the version of Python
        "packages": read_packages(run) or None,
        "modules": _read_modules(run),
        "script": {"job.sh": _digest(read_script(run))},
    }
    facts = {name: _abbreviate_values(run, values) for name, values in sections.items() if values is not None}
    return mask_secrets(facts, run)


def read_script(run: Run) -> str:
    """Return a run's job script, with ``RUN`` in place of the run directory."""
    try:
        text = safe_reading.read_text(run.directory / "job.sh")
    except (FileNotFoundError, safe_reading.BadRecordError):
        return ""
    run_dir = _submitted_directory(run)
    return text.replace(str(run_dir), "RUN").replace(run_dir.name, "RUN")


def read_provenance(run: Run, name: str) -> str | None:
    """Return the text of a file in a run's folder ``provenance``; None if the file does not exist.

    Files that are common to all tasks of a sweep are in the sweep's directory.
    """
    for directory in dict.fromkeys((run.directory, _submitted_directory(run))):
        try:
            return safe_reading.read_text(directory / FOLDER / name, "replace")
        except (FileNotFoundError, safe_reading.BadRecordError):
            continue
    return None


def read_provenance_record(run: Run, name: str, record_class: type[Record]) -> Record:
    """Return the record in a file of a run's folder ``provenance``; an empty record if there is no valid file."""
    try:
        return safe_reading.parse_record_text(record_class, read_provenance(run, name) or "{}")
    except ValueError:
        return record_class()


def read_packages(run: Run) -> dict[str, str]:
    """Return the version or the URL of each package of the job's Python, by name."""
    packages = {}
    for line in (read_provenance(run, "packages.txt") or "").splitlines():
        if line.startswith("# Python "):
            packages["Python"] = line.removeprefix("# Python ").partition(",")[0]
        elif line:
            name, separator, version = line.partition("==") if "==" in line.split(" @ ")[0] else line.partition(" @ ")
            packages[name] = version if separator else "?"
    return packages


def parse_arguments(argv: Sequence[str], python: str | None) -> dict[str, str]:
    """Parse a command line into the program, named options, and numbered positional arguments.

    Args:
        argv: The command line of one rank.
        python: The Python interpreter, if the program is a Python script.
    """
    program_words = 2 if argv and argv[0] == python else 1
    arguments: dict[str, str] = {"program": " ".join(argv[:program_words][-1:])}
    position, remaining = 0, list(argv[program_words:])
    while remaining:
        word = remaining.pop(0)
        if match := _OPTION.fullmatch(word):
            name, value = match[1].replace("_", "-"), match[2]
            if value is None:
                value = remaining.pop(0) if remaining and not _OPTION.fullmatch(remaining[0]) else "given"
            arguments[name] = f"{arguments[name]} {value}" if name in arguments else value
        else:
            position += 1
            arguments[f"argument {position}"] = word
    return arguments


def flatten(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Flatten nested tables to dotted keys, without unset values."""
    flat: dict[str, object] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        elif is_set(value):
            flat[f"{prefix}{key}"] = value
    return flat


def is_set(value: object) -> bool:
    """Return whether a value counts as set: 0 is set; None, False and empty values are not."""
    return bool(value) or (value == 0 and value is not False)


def _submitted_directory(run: Run) -> Path:
    """Return the directory that was submitted: of the run, or of the sweep for a task."""
    return (run.sweep or run).directory


def _describe_outcome(run: Run) -> dict[str, object]:
    record = run.exit_record()
    if not record:
        return {"state": "no end is recorded" if run.job_id else "not submitted"}
    duration = {"seconds": record.seconds} if record.ended else {}
    state = "back in the queue" if record.requeued else state_from_record(record).name
    values = {"exit code": record.exit_code, "reason": record.reason, "host": record.host, **duration}
    return {"state": state if duration else "STOPPING", **values}


def _describe_code(run: Run) -> dict[str, object] | None:
    git = read_provenance_record(run, "git.json", GitRecord)
    if git == GitRecord():
        return None
    diff, changed_files = read_provenance(run, "code.diff"), git.changed
    changes = "none" if changed_files == [] else NOT_RECORDED
    if changed_files and diff:
        changes = f"{len(changed_files)} files, {hashlib.sha256(diff.encode()).hexdigest()[:12]}"
    origin = {"repository": git.repository, "commit": git.commit, "branch": git.branch}
    return {**origin, "changes": changes, "untracked": git.untracked}


def _read_modules(run: Run) -> dict[str, str] | None:
    text = read_provenance(run, "modules.txt")
    return None if text is None else dict.fromkeys(text.split(), "loaded")


def _digest(text: str) -> str:
    """Return a short hash of a text; empty for an empty text."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:12] if text else ""


def _abbreviate_values(run: Run, values: Mapping[str, object]) -> dict[str, object]:
    run_dir = str(_submitted_directory(run))
    return {str(key)[:MAX_CHARACTERS]: _abbreviate(value, run_dir) for key, value in values.items() if is_set(value)}


def _abbreviate(value: object, run_dir: str) -> object:
    """Replace the run directory by RUN in a value, and truncate long texts with a hash."""
    if isinstance(value, dict):
        return {key: _abbreviate(item, run_dir) for key, item in value.items()}
    if isinstance(value, list):
        return [_abbreviate(item, run_dir) for item in value]
    if isinstance(value, str) and len(value) > MAX_CHARACTERS:
        return f"{value[:MAX_CHARACTERS]} ... ({len(value):,} characters, {_digest(value)})"
    return value.replace(run_dir, "RUN") if isinstance(value, str) else value
