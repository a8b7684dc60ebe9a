"""All that a run directory says of a run, by section: what was asked for, what it was made of, what came of it."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

from hpcrun.jobs import records
from hpcrun.jobs.run_files import GitRecord
from hpcrun.jobs.states import from_record
from hpcrun.provenance.record import FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hpcrun.jobs.kinds import Record
    from hpcrun.jobs.runs import Run

    Facts = dict[str, dict[str, Any]]

CAME_OF_IT = ("outcome", "result", "last epoch")
"""The sections that tell what came of a run; the others tell what it was made of."""

RECORDED = ("code", "versions", "packages", "modules")
"""The sections that a run may lack: its job has not started, or not got so far; its code lies in no repository."""

UNKNOWN = "not recorded"
"""What stands for a value that the record of a run ought to tell, and does not; it is not alike in two runs."""

MOST_LETTERS = 1000
"""Of a longer value, which no program needs, only the beginning is shown."""

_TOLD_APART = {
    "name", "site", "resources", "argv", "environment", "run_dir", "template_folders", "python", "values", "tasks",
    "max_parallel",
}  # fmt: skip
_OPTION = re.compile(r"(--?[A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)


def facts(run: Run) -> Facts:
    """Return what is known of a run, each section's values by their names; what nobody said is left out.

    Of the `RECORDED` sections there are only those that the run has a record of, which may say that there is nothing.

    Paths in the run directory are written as ``RUN/...``: they differ from run to run, and say nothing.

    Args:
        run: The run.
    """
    spec = run.spec
    result = run.result() or {}
    sections: dict[str, dict[str, Any] | None] = {
        "outcome": _outcome(run),
        "result": {key: value for key, value in result.items() if key != "versions"},
        "last epoch": dict(run.latest().said),
        "arguments": arguments(spec.argv, spec.python),
        "resources": dict(spec.resources.said),
        "job": {key: value for key, value in spec.said.items() if key not in _TOLD_APART},
        "environment": dict(spec.environment),
        "site": flat(spec.site.said),
        "code": _code(run),
        "versions": result.get("versions"),
        "packages": packages(run) or None,  # the job writes Python's version at least
        "modules": _modules(run),
        "script": {"job.sh": _digest(script(run))},
    }
    return {name: _plain(run, values) for name, values in sections.items() if values is not None}


def script(run: Run) -> str:
    """Return a run's script, with ``RUN`` for its run directory."""
    try:
        text = records.text(run.directory / "job.sh")
    except (FileNotFoundError, records.BadRecordError):
        return ""
    own = _own(run)
    return text.replace(str(own), "RUN").replace(own.name, "RUN")


def kept(run: Run, name: str) -> str | None:
    """Return the text of a file in a run's ``provenance``; None where there is none.

    What is the same for all tasks of a sweep, the sweep's own directory has.
    """
    for directory in dict.fromkeys((run.directory, _own(run))):
        try:
            return records.text(directory / FOLDER / name, "replace")
        except (FileNotFoundError, records.BadRecordError):
            continue
    return None


def kept_record(run: Run, name: str, model: type[Record]) -> Record:
    """Return the record in a file in a run's ``provenance``; one that says nothing where there is none."""
    try:
        return records.parsed_text(model, kept(run, name) or "{}")
    except ValueError:
        return model()


def packages(run: Run) -> dict[str, str]:
    """Return the version, or the origin, of each package that a job's Python had."""
    found = {}
    for line in (kept(run, "packages.txt") or "").splitlines():
        if line.startswith("# Python "):
            found["Python"] = line.removeprefix("# Python ").partition(",")[0]
        elif line:
            name, sign, version = line.partition("==") if "==" in line.split(" @ ")[0] else line.partition(" @ ")
            found[name] = version if sign else "?"
    return found


def arguments(argv: Sequence[str], python: str | None) -> dict[str, Any]:
    """Return the program and its arguments by their names; arguments without one by their places.

    Args:
        argv: The command line of one rank.
        python: The interpreter that a script was given to.
    """
    words = 2 if argv and argv[0] == python else 1
    found: dict[str, Any] = {"program": " ".join(argv[:words][-1:])}
    place, rest = 0, list(argv[words:])
    while rest:
        word = rest.pop(0)
        if match := _OPTION.fullmatch(word):
            name, value = match[1].replace("_", "-"), match[2]
            if value is None:
                value = rest.pop(0) if rest and not _OPTION.fullmatch(rest[0]) else "given"
            found[name] = f"{found[name]} {value}" if name in found else value
        else:
            place += 1
            found[f"argument {place}"] = word
    return found


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested tables by their keys with dots, without those that nobody set."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}.")
        elif said(value):
            found[f"{prefix}{key}"] = value
    return found


def said(value: object) -> bool:
    """Return whether a value says something: 0 does, and None, False and what is empty do not."""
    return bool(value) or (value == 0 and value is not False)


def _own(run: Run) -> Path:
    """Return the directory that was submitted: the run's, or of a task of a sweep the sweep's."""
    return (run.sweep or run).directory


def _outcome(run: Run) -> dict[str, Any]:
    record = run.record()
    if not record:
        return {"state": "no end is recorded" if run.job_id else "not submitted"}
    ran = {"seconds": record.seconds} if record.ended else {}
    state = "back in the queue" if record.requeued else from_record(record).name
    told = {"exit code": record.exit_code, "reason": record.reason, "host": record.host, **ran}
    return {"state": state if ran else "STOPPING", **told}


def _code(run: Run) -> dict[str, Any] | None:
    git = kept_record(run, "git.json", GitRecord)
    if not git.said:
        return None
    diff, changed = kept(run, "code.diff"), git.changed
    changes = "none" if changed == [] else UNKNOWN
    if changed and diff:
        changes = f"{len(changed)} files, {hashlib.sha256(diff.encode()).hexdigest()[:12]}"
    known = {key: git.said.get(key) for key in ("repository", "commit", "branch")}
    return {**known, "changes": changes, "untracked": git.said.get("untracked")}


def _modules(run: Run) -> dict[str, str] | None:
    text = kept(run, "modules.txt")
    return None if text is None else dict.fromkeys(text.split(), "loaded")


def _digest(text: str) -> str:
    """Return what tells texts apart, and is short enough for a table; nothing for no text."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:12] if text else ""


def _plain(run: Run, values: dict[str, Any]) -> dict[str, Any]:
    own = str(_own(run))
    return {str(key)[:MOST_LETTERS]: _brief(value, own) for key, value in values.items() if said(value)}


def _brief(value: Any, own: str) -> Any:
    """Return a value with RUN for the run directory, and of a long text the beginning and what tells it from others."""
    if isinstance(value, dict):
        return {key: _brief(one, own) for key, one in value.items()}
    if isinstance(value, list):
        return [_brief(one, own) for one in value]
    if isinstance(value, str) and len(value) > MOST_LETTERS:
        return f"{value[:MOST_LETTERS]} ... ({len(value):,} characters, {_digest(value)})"
    return value.replace(own, "RUN") if isinstance(value, str) else value
