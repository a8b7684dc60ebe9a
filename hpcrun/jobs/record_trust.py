"""Trust checks for run records: cancel and cleanup act on the processes, files and hosts that these records name."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

from hpcrun import secrets, write_access
from hpcrun.errors import HpcrunError
from hpcrun.jobs.safe_reading import MAX_BYTES
from hpcrun.nodelist import is_host_name
from hpcrun.sites import trust
from hpcrun.sites.source import SiteSource

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.jobs.runs import Run

TRUSTED_FILES = ("job.json", "submitted.json", "exit.json", "starts.jsonl", "cleaned.json", "hostfile")
"""The files in a run directory that name a run's jobs, processes, hosts and folders."""

_UNUSED_MESSAGE = "is not used: "
_JOB_ID = re.compile(r"\d{1,18}(_\d{1,9})?")


def require_trusted(run: Run) -> None:
    """Refuse to act on records that another user may have written, or that belong to another run.

    Each of `TRUSTED_FILES` must pass the check of ``hpcrun resubmit``, see `hpcrun.sites.trust`. Afterwards
    each read of a record repeats the check, because somebody may have replaced the file.

    Args:
        run: The run to cancel or to clean up.

    Raises:
        HpcrunError: A record is not trusted, or the directory is a copy of another run's directory.
    """
    # the run directory was removed: the data comes from the index, which belongs to this user
    if not run.directory.exists():
        return
    _require_owner(run)
    refused_files = [
        (file, reason)
        for file in (run.directory / name for name in TRUSTED_FILES)
        if (reason := _find_trust_problem(file))
    ]
    if refused_files:
        files = " ".join(str(file) for file, _ in refused_files)
        hint = f"hpcrun site allow {files} shows its content and allows it"
        raise trust.NotAllowedError(
            "\n".join(f"{file} is not used: {reason}" for file, reason in refused_files), hint=hint
        )
    for property_name in ("spec", "submission", "tasks", "faults"):  # forget values that were read before the check
        run.__dict__.pop(property_name, None)
    run.__dict__["trust_check"] = _check_owner
    _require_original(run)
    _require_values(run)
    if reason := next(
        (f"{run.directory / name} {reason}" for name, reason in run.faults.items() if _UNUSED_MESSAGE in reason), None
    ):
        raise trust.NotAllowedError(reason, hint="another process changed it during the check: chmod go-w its folder")


def require_trusted_script(run: Run) -> None:
    """Refuse to start a job script if another user may have written the script or a file that it loads.

    Raises:
        HpcrunError: The script, its bash library or its secrets are not trusted, or the script does not exist.
    """
    directory = (run.sweep or run).directory
    script = directory / "job.sh"
    if not script.exists():
        raise HpcrunError(f"{script} does not exist", hint=f"hpcrun resubmit {run.directory} makes a new one")
    for file in (script, *sorted(directory.glob("shell/*.bash")), directory / secrets.SECRETS_FILE):
        if reason := _find_trust_problem(file):
            hint = f"hpcrun site allow {file} shows its content and allows it"
            raise trust.NotAllowedError(f"{file} is not used: {reason}", hint=hint)


def is_job_id(value: object) -> bool:
    """Return whether a value has the form of a job id or of an array task's id."""
    return isinstance(value, str) and bool(_JOB_ID.fullmatch(value))


def _require_owner(run: Run) -> None:
    try:
        uid = run.directory.stat().st_uid
    except OSError as error:
        raise HpcrunError(f"{run.directory}: {error.strerror}") from None
    if uid not in {0, os.geteuid(), *trust.trusted_owners()}:
        hint = "only the user who submitted a job can cancel it or clean up after it"
        raise HpcrunError(f"{run.directory} is not used: {write_access.name_of_uid(uid)} owns it", hint=hint)


def _find_trust_problem(file: Path) -> str | None:
    """Return the reason why a record is not trusted; None if it is trusted or does not exist."""
    try:
        if not stat.S_ISREG(file.lstat().st_mode):  # opening a pipe may block forever
            return "it is not a regular file"
        if file.lstat().st_size > MAX_BYTES:
            return "it is too large"
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, encoding="utf-8", errors="replace", newline="") as stream:  # noqa: PTH123 - no link
            return _check_owner(file, stream.read(), os.fstat(descriptor))
    except FileNotFoundError:
        return None
    except OSError as error:
        return error.strerror


def _check_owner(file: Path, text: str, file_stat: os.stat_result) -> str | None:
    return trust.refusal_reason(SiteSource(file.absolute(), text, file_stat, is_record=True))


def _require_original(run: Run) -> None:
    """Require that a run directory is the original, to which the job belongs, and not a copy."""
    recorded_path = run.recorded_path
    if recorded_path and (recorded_path / "job.json").exists() and not recorded_path.samefile(run.directory):
        hint = f"use the original: {recorded_path}"
        raise HpcrunError(f"{run.directory} is a copy of the run {recorded_path}, which the job belongs to", hint=hint)


def _require_values(run: Run) -> None:
    record = run.exit_record()
    hosts = {"submitted.json": run.submission.host, "exit.json": record.host if record else ""}
    ids = {"submitted.json": (run.job_id, run.submission.allocation)}
    for name, host in hosts.items():
        if host and not is_host_name(host):
            raise _invalid_value_error(run, name, f"{host!r} is not a host name")
    for name, values in ids.items():
        for value in values:
            if value is not None and not is_job_id(value):
                raise _invalid_value_error(run, name, f"{value!r} is not a job id")


def _invalid_value_error(run: Run, name: str, problem: str) -> HpcrunError:
    return HpcrunError(f"{run.directory / name} is not used: {problem}", hint="hpcrun did not write this value")
