"""Trust checks for run records: cancel and cleanup signal, remove and connect to what the records name."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

from hpcrun import secrets, write_access
from hpcrun.errors import HpcrunError
from hpcrun.jobs.records import MAX_BYTES
from hpcrun.nodelist import is_host_name
from hpcrun.sites import trust
from hpcrun.sites.source import Source

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.jobs.runs import Run

TRUSTED_FILES = ("job.json", "submitted.json", "exit.json", "starts.jsonl", "cleaned.json", "hostfile")
"""The files in a run directory that name a run's jobs, processes, hosts and folders."""

_NOT_USED = "is not used: "
_JOB_ID = re.compile(r"\d{1,18}(_\d{1,9})?")


def require_trusted(run: Run) -> None:
    """Refuse to act on records that another user may have written, or that belong to another run.

    Each of `TRUSTED_FILES` must pass the check of ``hpcrun resubmit``, see `hpcrun.sites.trust`. From then on each
    read of a record repeats the check, because somebody may replace the file in between.

    Args:
        run: The run to cancel or to clean up.

    Raises:
        HpcrunError: A record is not trusted; names the file and who may write it, or the original run.
    """
    if not run.directory.exists():  # removed by hand: its data comes from the user's own index
        return
    _require_owner(run)
    refused = [(file, why) for file in (run.directory / name for name in TRUSTED_FILES) if (why := _find_refusal(file))]
    if refused:
        files = " ".join(str(file) for file, _ in refused)
        hint = f"hpcrun site allow {files} shows its content and allows it"
        raise trust.NotAllowedError("\n".join(f"{file} is not used: {why}" for file, why in refused), hint=hint)
    for known in ("spec", "submission", "tasks", "faults"):  # read before the check
        run.__dict__.pop(known, None)
    run.__dict__["guard"] = _check_owner
    _require_original(run)
    _require_values(run)
    if why := next((f"{run.directory / name} {why}" for name, why in run.faults.items() if _NOT_USED in why), None):
        raise trust.NotAllowedError(why, hint="another process changed it during the check: chmod go-w its folder")


def require_trusted_script(run: Run) -> None:
    """Refuse to start a job script that another user may have written, or that loads such files.

    Raises:
        HpcrunError: The script, its bash library or its secrets are not trusted, or the script does not exist.
    """
    directory = (run.sweep or run).directory
    script = directory / "job.sh"
    if not script.exists():
        raise HpcrunError(f"{script} does not exist", hint=f"hpcrun resubmit {run.directory} makes a new one")
    for file in (script, *sorted(directory.glob("shell/*.bash")), directory / secrets.SECRETS_FILE):
        if why := _find_refusal(file):
            hint = f"hpcrun site allow {file} shows its content and allows it"
            raise trust.NotAllowedError(f"{file} is not used: {why}", hint=hint)


def is_job_id(value: object) -> bool:
    """Return whether something can be the id of a job, or of a task of an array."""
    return isinstance(value, str) and bool(_JOB_ID.fullmatch(value))


def _require_owner(run: Run) -> None:
    try:
        uid = run.directory.stat().st_uid
    except OSError as error:
        raise HpcrunError(f"{run.directory}: {error.strerror}") from None
    if uid not in {0, os.geteuid(), *trust.trusted_owners()}:
        hint = "only the user who submitted a job can cancel it or clean up after it"
        raise HpcrunError(f"{run.directory} is not used: {write_access.name_of_uid(uid)} owns it", hint=hint)


def _find_refusal(file: Path) -> str | None:
    """Return why a record is not trusted; None if it is trusted or does not exist."""
    try:
        if not stat.S_ISREG(file.lstat().st_mode):  # opening a pipe may wait for ever
            return "it is not a regular file"
        if file.lstat().st_size > MAX_BYTES:
            return "it is too large"
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, encoding="utf-8", errors="replace", newline="") as opened:  # noqa: PTH123 - no link
            return _check_owner(file, opened.read(), os.fstat(descriptor))
    except FileNotFoundError:
        return None
    except OSError as error:
        return error.strerror


def _check_owner(file: Path, text: str, status: os.stat_result) -> str | None:
    return trust.refusal_reason(Source(file.absolute(), text, status, is_record=True))


def _require_original(run: Run) -> None:
    """Refuse a copy of a run directory: the job belongs to the original."""
    recorded = run.recorded_path
    if recorded and (recorded / "job.json").exists() and not recorded.samefile(run.directory):
        hint = f"use the original: {recorded}"
        raise HpcrunError(f"{run.directory} is a copy of the run {recorded}, which the job belongs to", hint=hint)


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


def _invalid_value_error(run: Run, name: str, what: str) -> HpcrunError:
    return HpcrunError(f"{run.directory / name} is not used: {what}", hint="hpcrun did not write this value")
