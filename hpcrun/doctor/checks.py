"""The table of checks: where each runs, what it needs, and making it; one that fails or hangs is a finding, too."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from hpcrun.containers import RUNTIMES
from hpcrun.doctor import accounts, in_job, job_environment, login_host, script_probe, slurm_checks
from hpcrun.errors import HpcrunError
from hpcrun.finding import error, failure, ok, warning
from hpcrun.nodelist import fold
from hpcrun.schedulers.ask import end_all
from hpcrun.sites.lint import rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hpcrun.doctor.context import Case
    from hpcrun.finding import Finding
    from hpcrun.jobs.runs import Run
    from hpcrun.sites.model import Site

SECONDS = 60.0
"""For a check; the job's script has its own end before."""

TIDY_SECONDS = 5.0
"""For a check that is interrupted, to remove what it has made."""

Place = Literal["anywhere", "login", "node", "job"]
Need = Literal["slurm", "answer", "job"]


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: What is checked.
        place: Where it runs: anywhere, reading the site file alone; on the login node; on a node, and with the job's
            script on the login node, too; of a job that has ended, on what its nodes told.
        look: Yields what it finds, from the case; on a node, from the site and the node's facts; of a job, from the
            case, the job and what its nodes told.
        needs: slurm, a site that has one; answer, a Slurm that answers; job, a site whose files may be used.
    """

    name: str
    place: Place
    look: Callable[..., Iterator[Finding]]
    needs: tuple[Need, ...] = ()


def _site_file(case: Case) -> Iterator[Finding]:
    """Tell what reading the site file alone shows: all checks of `hpcrun.sites.lint.rules`."""
    if case.not_allowed:
        yield failure("site file", case.not_allowed)
    findings = rules.findings(case.found)
    yield from findings
    if not (findings or case.not_allowed):
        yield ok("site file", f"{case.site.name} ({case.found.chosen_by})")


def _slurm(case: Case) -> Iterator[Finding]:
    """Look whether Slurm answers, and tell what cannot be looked at where it does not."""
    yield from slurm_checks.answers(case)
    if not case.slurm_answers:
        rest = ", ".join(check.name for check in CHECKS if "answer" in check.needs)
        yield warning("Slurm", f"not looked at: {rest}", "ask again when Slurm answers")


def _job_script(case: Case) -> Iterator[Finding]:
    """Look at what a job's programs find, with the job's own script."""
    if case.container and not RUNTIMES[case.container.runtime].command:
        who = "the job below" if case.in_job else "--in-job"
        yield ok("job script", f"srun opens {case.container.image}, so {who} alone looks inside")
        return
    try:
        case.here = script_probe.probe(case)
    except HpcrunError as reason:
        yield failure("job script", reason)
        return
    yield from of_host(case.chosen, case.here["facts"], contained=bool(case.container))


def _nodes(case: Case, _job: Run, nodes: Sequence[dict[str, Any]]) -> Iterator[Finding]:
    """Find what is wrong with nodes, each thing once with all nodes that have it."""
    having: dict[Finding, list[str]] = {}
    for node in nodes:
        facts = {**node["facts"], "host": node["host"], "clock skew": node["measured"]["skew"]}
        for finding in of_host(case.chosen, facts, contained=bool(case.container)):
            if finding.severity != "ok":
                having.setdefault(finding, []).append(node["host"])
    for finding, hosts in having.items():
        yield replace(finding, what=f"{finding.what} (on {fold(hosts)})")


CHECKS = (
    Check("site file", "anywhere", _site_file),
    Check("Slurm", "login", _slurm, ("slurm",)),
    Check("partitions", "login", slurm_checks.partitions, ("answer",)),
    Check("limits", "login", slurm_checks.limits, ("answer",)),
    Check("GPUs", "login", slurm_checks.gpu_types, ("answer",)),
    Check("account", "login", accounts.account, ("answer",)),
    Check("QoS", "login", accounts.qos, ("answer",)),
    Check("mpi.type", "login", slurm_checks.mpi_type, ("answer",)),
    Check("a job", "login", slurm_checks.takes_jobs, ("answer", "job")),
    Check("job script", "login", _job_script, ("job",)),
    Check("run root", "login", login_host.run_root, ("job",)),
    Check("command", "login", login_host.command),
    Check("list of runs", "login", login_host.own_folders),
    Check("environment", "login", login_host.variables),
    Check("locale", "login", login_host.locale),
    Check("modules", "node", job_environment.modules),
    Check("Python", "node", job_environment.python),
    Check("MPI library", "node", job_environment.mpi),
    Check("launcher", "node", job_environment.launcher),
    Check("XLA", "node", job_environment.cuda),
    Check("limits of the shell", "node", job_environment.ulimits),
    Check("clock", "node", job_environment.clock),
    Check("job", "job", in_job.ended),
    Check("nodes", "job", in_job.silent),
    Check("run root", "job", in_job.shared),
    Check("MPI", "job", in_job.world),
    Check("GPUs", "job", in_job.gpus),
    Check("each node", "job", _nodes),
)


def of_login(case: Case) -> list[Check]:
    """Return the checks that are made here of a case; of a site that is not used, those that need no job."""
    lacking = {"job"} if case.not_allowed else set()
    lacking |= {"slurm", "answer"} if case.site.scheduler != "slurm" else set()
    return [check for check in CHECKS if check.place in {"anywhere", "login"} and not lacking.intersection(check.needs)]


def examine(case: Case, check: Check, seconds: float = 2 * SECONDS + script_probe.SECONDS) -> list[Finding]:
    """Make one check, and return what it finds.

    Args:
        case: What to look at.
        check: One of `of_login`.
        seconds: After so many, it counts as hung: a file server that is gone answers nobody.
    """
    found: list[Finding] = []
    crash: list[BaseException] = []
    done = threading.Event()  # a join() that is interrupted takes its thread for ended (Python 3.11)

    def look() -> None:
        try:
            if "answer" not in check.needs or case.slurm_answers:
                found.extend(check.look(case))
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
        return [*found, error(check.name, f"no answer in {seconds:.0f} s", fix)]
    if crash:
        what = f"{type(crash[0]).__name__}: {crash[0]}"
        return [*found, error(check.name, f"this check failed: {what}", "the other checks hold; report this one")]
    return found


def of_host(site: Site, facts: dict[str, Any], *, contained: bool = False) -> Iterator[Finding]:
    """Make the checks of a node.

    Args:
        site: The site.
        facts: What is known of the host.
        contained: Whether they were found inside a container, outside of which the launcher is.
    """
    known = defaultdict(str, facts)  # another version of hpcrun may have told less
    for check in CHECKS:
        if check.place == "node" and not (contained and check.look is job_environment.launcher):
            yield from check.look(site, known)


def of_job(case: Case, run: Run, nodes: Sequence[dict[str, Any]]) -> list[Finding]:
    """Make the checks of a job that has ended, and of its nodes.

    Args:
        case: What is looked at.
        run: The job.
        nodes: What `hpcrun.doctor.in_job.told` returned.
    """
    return [found for check in CHECKS if check.place == "job" for found in check.look(case, run, nodes)]
