"""Whether a run's records are its user's own: what they name is signalled, removed and reached as this user."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

from hpcrun import write_access
from hpcrun.errors import HpcrunError
from hpcrun.jobs.records import MOST_BYTES
from hpcrun.nodelist import is_host_name
from hpcrun.sites import trust
from hpcrun.sites.source import Source

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.jobs.runs import Run

RECORDS = ("job.json", "submitted.json", "exit.json", "starts.jsonl", "cleaned.json", "hostfile")
"""The files of a run directory that say which jobs, processes, hosts and folders are a run's."""

_NOT_USED = "is not used: "
_JOB_ID = re.compile(r"\d{1,18}(_\d{1,9})?")


def require(run: Run) -> None:
    """Refuse to act on records that somebody else may have written, or that are another run's.

    The rule is that of ``hpcrun resubmit``, see `hpcrun.sites.trust`, for each of `RECORDS`. From then on it holds for
    whatever is read of the run, each time: somebody may put another file in a record's place.

    Args:
        run: A run that is to be cancelled or cleaned up after.

    Raises:
        HpcrunError: Names the file, and who may write it, or the run whose copy this is.
    """
    if not run.directory.exists():  # removed by hand: what is known of it stands in the user's own list of runs
        return
    _require_owner(run)
    refused = [(file, why) for file in (run.directory / name for name in RECORDS) if (why := _refusal(file))]
    if refused:
        files = " ".join(str(file) for file, _ in refused)
        hint = f"hpcrun site allow {files} shows what it says, and lets it be used as it is"
        raise trust.NotAllowedError("\n".join(f"{file} is not used: {why}" for file, why in refused), hint=hint)
    for known in ("spec", "submission", "tasks", "faults"):  # read before anybody looked at whose they are
        run.__dict__.pop(known, None)
    run.__dict__["guard"] = _guard
    _require_place(run)
    _require_values(run)
    if why := next((f"{run.directory / name} {why}" for name, why in run.faults.items() if _NOT_USED in why), None):
        raise trust.NotAllowedError(why, hint="somebody writes there while you look at it: chmod go-w its folder")


def is_job_id(value: object) -> bool:
    """Return whether something can be the id of a job, or of a task of an array."""
    return isinstance(value, str) and bool(_JOB_ID.fullmatch(value))


def _require_owner(run: Run) -> None:
    try:
        uid = run.directory.stat().st_uid
    except OSError as error:
        raise HpcrunError(f"{run.directory}: {error.strerror}") from None
    if uid not in {0, os.geteuid(), *trust.trusted_owners()}:
        hint = "only who submitted a job can end it, or clean up after it"
        raise HpcrunError(f"{run.directory} is not used: {write_access.user_name(uid)} owns it", hint=hint)


def _refusal(file: Path) -> str | None:
    """Tell why a record is not used, None where it is, or is not there."""
    try:
        if not stat.S_ISREG(file.lstat().st_mode):  # opening a pipe may wait for ever
            return "it is no ordinary file"
        if file.lstat().st_size > MOST_BYTES:
            return "it is too large"
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, encoding="utf-8", errors="replace", newline="") as opened:  # noqa: PTH123 - no link
            return _guard(file, opened.read(), os.fstat(descriptor))
    except FileNotFoundError:
        return None
    except OSError as error:
        return error.strerror


def _guard(file: Path, text: str, status: os.stat_result) -> str | None:
    return trust.refusal_reason(Source(file.absolute(), text, status, record=True))


def _require_place(run: Run) -> None:
    """Refuse a copy of a run directory: its job is the original's."""
    recorded = run.recorded
    if recorded and (recorded / "job.json").exists() and not recorded.samefile(run.directory):
        hint = f"name that one: {recorded}"
        raise HpcrunError(f"{run.directory} is a copy of the run {recorded}, whose job it was", hint=hint)


def _require_values(run: Run) -> None:
    record = run.record()
    hosts = {"submitted.json": run.submission.host, "exit.json": record.host if record else ""}
    ids = {"submitted.json": (run.job_id, run.submission.allocation)}
    for name, host in hosts.items():
        if host and not is_host_name(host):
            raise _odd(run, name, f"{host!r} is no host name")
    for name, values in ids.items():
        for value in values:
            if value is not None and not is_job_id(value):
                raise _odd(run, name, f"{value!r} is no job id")


def _odd(run: Run, name: str, what: str) -> HpcrunError:
    return HpcrunError(f"{run.directory / name} is not used: {what}", hint="hpcrun did not write it so")
