"""The recorded values of a run by section: request, inputs and outcome."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from hpcrun.jobs import records
from hpcrun.jobs.run_files import GitRecord, Result
from hpcrun.jobs.run_secrets import mask_secrets
from hpcrun.jobs.states import state_from_record
from hpcrun.provenance.record import FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.validation import Record

    Facts = dict[str, dict[str, object]]

OUTCOME_SECTIONS = ("outcome", "result", "last epoch")
"""The sections with the outcome of a run; the other sections have its inputs."""

OPTIONAL_SECTIONS = ("code", "versions", "packages", "modules")
"""The sections that a run may lack, before its job has started or if its code is in no repository."""

NOT_RECORDED = "not recorded"
"""The placeholder for a value that should be recorded, and is not; two of them count as different."""

MAX_CHARACTERS = 1000
"""Maximum length of a value; longer values are truncated."""

_SEPARATE_KEYS = {
    "name", "site", "resources", "argv", "environment", "run_dir", "template_folders", "python", "values", "tasks",
    "max_parallel",
}  # fmt: skip
_OPTION = re.compile(r"(--?[A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)


def collect_facts(run: Run) -> Facts:
    """Return the recorded values of a run by section and name, without unset values.

    Sections in `OPTIONAL_SECTIONS` are present only where the run has a record of them, which may be empty.

    Paths in the run directory become ``RUN/...``, because they differ between runs without significance. The job's own
    secrets become ``***``.

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
        "job": {key: value for key, value in spec.all_values.items() if key not in _SEPARATE_KEYS},
        "environment": dict(spec.environment),
        "site": flatten(spec.site.all_values),
        "code": _describe_code(run),
        "versions": result.versions,
        "packages": read_packages(run)
        or None,  # never empty after the job's begin, because it contains Python's version
        "modules": _read_modules(run),
        "script": {"job.sh": _digest(read_script(run))},
    }
    known = {name: _abbreviate_values(run, values) for name, values in sections.items() if values is not None}
    return mask_secrets(known, run)


def read_script(run: Run) -> str:
    """Return a run's script, with ``RUN`` in place of its run directory."""
    try:
        text = records.read_text(run.directory / "job.sh")
    except (FileNotFoundError, records.BadRecordError):
        return ""
    own = _submitted_directory(run)
    return text.replace(str(own), "RUN").replace(own.name, "RUN")


def read_provenance(run: Run, name: str) -> str | None:
    """Return the text of a file in a run's ``provenance``; None if it does not exist.

    The sweep's own directory has the files that are the same for all tasks.
    """
    for directory in dict.fromkeys((run.directory, _submitted_directory(run))):
        try:
            return records.read_text(directory / FOLDER / name, "replace")
        except (FileNotFoundError, records.BadRecordError):
            continue
    return None


def read_provenance_record(run: Run, name: str, model: type[Record]) -> Record:
    """Return the record in a file in a run's ``provenance``; an empty record if it does not exist."""
    try:
        return records.parse_record_text(model, read_provenance(run, name) or "{}")
    except ValueError:
        return model()


def read_packages(run: Run) -> dict[str, str]:
    """Return the version or the origin of each package of the job's Python."""
    found = {}
    for line in (read_provenance(run, "packages.txt") or "").splitlines():
        if line.startswith("# Python "):
            found["Python"] = line.removeprefix("# Python ").partition(",")[0]
        elif line:
            name, sign, version = line.partition("==") if "==" in line.split(" @ ")[0] else line.partition(" @ ")
            found[name] = version if sign else "?"
    return found


def parse_arguments(argv: Sequence[str], python: str | None) -> dict[str, str]:
    """Parse a command line into the program, named options, and numbered positional arguments.

    Args:
        argv: The command line of one rank.
        python: The Python interpreter, if it runs a script.
    """
    words = 2 if argv and argv[0] == python else 1
    found: dict[str, str] = {"program": " ".join(argv[:words][-1:])}
    position, rest = 0, list(argv[words:])
    while rest:
        word = rest.pop(0)
        if match := _OPTION.fullmatch(word):
            name, value = match[1].replace("_", "-"), match[2]
            if value is None:
                value = rest.pop(0) if rest and not _OPTION.fullmatch(rest[0]) else "given"
            found[name] = f"{found[name]} {value}" if name in found else value
        else:
            position += 1
            found[f"argument {position}"] = word
    return found


def flatten(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Flatten nested tables to dotted keys, without unset values."""
    found: dict[str, object] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found |= flatten(value, f"{prefix}{key}.")
        elif is_set(value):
            found[f"{prefix}{key}"] = value
    return found


def is_set(value: object) -> bool:
    """Return whether a value is set: 0 is; None, False and empty values are not."""
    return bool(value) or (value == 0 and value is not False)


def _submitted_directory(run: Run) -> Path:
    """Return the submitted directory: the run's own, or the sweep's for a task."""
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
    diff, changed = read_provenance(run, "code.diff"), git.changed
    changes = "none" if changed == [] else NOT_RECORDED
    if changed and diff:
        changes = f"{len(changed)} files, {hashlib.sha256(diff.encode()).hexdigest()[:12]}"
    known = {"repository": git.repository, "commit": git.commit, "branch": git.branch}
    return {**known, "changes": changes, "untracked": git.untracked}


def _read_modules(run: Run) -> dict[str, str] | None:
    text = read_provenance(run, "modules.txt")
    return None if text is None else dict.fromkeys(text.split(), "loaded")


def _digest(text: str) -> str:
    """Return a short hash of a text for a table; an empty string for an empty text."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:12] if text else ""


def _abbreviate_values(run: Run, values: Mapping[str, object]) -> dict[str, object]:
    own = str(_submitted_directory(run))
    return {str(key)[:MAX_CHARACTERS]: _abbreviate(value, own) for key, value in values.items() if is_set(value)}


def _abbreviate(value: object, own: str) -> object:
    """Replace the run directory by RUN in a value, and truncate long texts with a hash."""
    if isinstance(value, dict):
        return {key: _abbreviate(one, own) for key, one in value.items()}
    if isinstance(value, list):
        return [_abbreviate(one, own) for one in value]
    if isinstance(value, str) and len(value) > MAX_CHARACTERS:
        return f"{value[:MAX_CHARACTERS]} ... ({len(value):,} characters, {_digest(value)})"
    return value.replace(own, "RUN") if isinstance(value, str) else value
