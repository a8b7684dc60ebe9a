"""All checks on the login node, in order; one that fails or hangs is a row, and the others go on."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from hpcrun.containers import RUNTIMES
from hpcrun.doctor import accounts, environment, here, places, slurm
from hpcrun.errors import HpcrunError
from hpcrun.finding import error, failure, ok, warning
from hpcrun.schedulers.ask import end_all
from hpcrun.sites.lint import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hpcrun.doctor.case import Case
    from hpcrun.finding import Finding

SECONDS = 60.0
"""For a check; the job's script has its own end before."""

TIDY_SECONDS = 5.0
"""For a check that is interrupted, to remove what it has made."""


def site_file(case: Case) -> Iterator[Finding]:
    """Tell what reading the site file alone shows."""
    if case.not_allowed:
        yield failure("site file", case.not_allowed)
    findings = table.findings(case.found)
    yield from findings
    if not (findings or case.not_allowed):
        yield ok("site file", f"{case.site.name} ({case.found.chosen_by})")


def job_environment(case: Case) -> Iterator[Finding]:
    """Look at what a job's programs find, with the job's own script."""
    if case.container and not RUNTIMES[case.container.runtime].command:
        who = "the job below" if case.in_job else "--in-job"
        yield ok("job script", f"srun opens {case.container.image}, so {who} alone looks inside")
        return
    try:
        told = here.probe(case)
    except HpcrunError as reason:
        yield failure("job script", reason)
        return
    case.here = told
    yield from environment.rows(case.chosen, told["facts"], contained=bool(case.container))


BOTH = frozenset({"slurm", "local"})
SLURM = frozenset({"slurm"})
CHECKS: dict[str, tuple[Callable[[Case], Iterator[Finding]], frozenset[str]]] = {
    "site file": (site_file, BOTH),
    "Slurm": (slurm.answers, SLURM),
    "partitions": (slurm.partitions, SLURM),
    "limits": (slurm.limits, SLURM),
    "GPUs": (slurm.gpu_types, SLURM),
    "account": (accounts.account, SLURM),
    "QoS": (accounts.qos, SLURM),
    "mpi.type": (slurm.mpi_type, SLURM),
    "a job": (slurm.takes_jobs, SLURM),
    "job script": (job_environment, BOTH),
    "run root": (places.run_root, BOTH),
    "command": (places.command, BOTH),
    "list of runs": (places.own_folders, BOTH),
    "environment": (places.variables, BOTH),
    "locale": (places.locale, BOTH),
}
"""Each check's function, and the schedulers whose sites it is for."""

_OF_A_JOB = {"a job", "job script", "run root"}
_OF_A_SLURM_THAT_ANSWERS = ("partitions", "limits", "GPUs", "account", "QoS", "mpi.type", "a job")


def checks(case: Case) -> list[str]:
    """Return the names of the checks that this site needs; of one that is not used, those that need no job."""
    names = [name for name, (_, schedulers) in CHECKS.items() if case.site.scheduler in schedulers]
    return [name for name in names if not (case.not_allowed and name in _OF_A_JOB)]


def examine(case: Case, name: str, seconds: float = 2 * SECONDS + here.SECONDS) -> list[Finding]:
    """Make one check, and return its rows: none where there is nothing to say.

    Args:
        case: What to look at.
        name: Which check of `CHECKS`.
        seconds: After so many, it counts as hung: a file server that is gone answers nobody.
    """
    found: list[Finding] = []
    crash: list[BaseException] = []
    done = threading.Event()  # a join() that is interrupted takes its thread for ended (Python 3.11)

    def look() -> None:
        try:
            if name not in _OF_A_SLURM_THAT_ANSWERS or _answers(case):
                found.extend(CHECKS[name][0](case))
            if name == "Slurm" and not _answers(case):
                rest = ", ".join(_OF_A_SLURM_THAT_ANSWERS)
                found.append(warning(name, f"not looked at: {rest}", "ask again when Slurm answers"))
        except Exception as crashed:  # noqa: BLE001 - one check that fails is no reason to tell nothing of the others
            crash.append(crashed)
        finally:
            done.set()

    # a daemon: nothing waits for it at the end
    threading.Thread(target=look, daemon=True).start()
    try:
        done.wait(seconds)
    except BaseException:  # Ctrl+C, or SIGTERM
        end = time.monotonic() + TIDY_SECONDS
        while not done.is_set() and time.monotonic() < end:
            end_all()
            done.wait(0.1)
        raise
    if not done.is_set():
        fix = "a file server or a daemon does not answer: df and scontrol ping may tell which"
        return [*found, error(name, f"no answer in {seconds:.0f} s", fix)]
    if crash:
        what = f"{type(crash[0]).__name__}: {crash[0]}"
        return [*found, error(name, f"this check failed: {what}", "the other checks hold; report this one")]
    return found


def _answers(case: Case) -> bool:
    try:
        return bool(case.cluster)
    except HpcrunError:
        return False


def as_json(row: Finding) -> dict[str, Any]:
    """Return a row as JSON has it."""
    return {"check": row.check, "level": row.severity, "found": str(row), "fix": row.fix or None}
