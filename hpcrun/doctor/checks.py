"""The table of the doctor's checks, and functions that run them; a check that crashes or times out is a finding."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from hpcrun.containers import RUNTIMES
from hpcrun.doctor import (
    accounts,
    in_job,
    job_environment,
    login_host,
    node_differences,
    script_probe,
    slurm_checks,
)
from hpcrun.errors import HpcrunError
from hpcrun.finding import error, failure, ok, warning
from hpcrun.frozen import frozen
from hpcrun.nodelist import fold_hosts
from hpcrun.scheduler import find_scheduler
from hpcrun.schedulers.command import kill_running_commands
from hpcrun.sites.lint import rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hpcrun.doctor.context import CheckContext
    from hpcrun.doctor.node_report import NodeReport
    from hpcrun.finding import Finding
    from hpcrun.jobs.runs import Run
    from hpcrun.sites.site_model import Site

TIMEOUT_SECONDS = 60.0
"""Time in seconds; the timeout of a check is twice this time plus the timeout of the job script."""

CLEANUP_SECONDS = 5.0
"""Grace period in which an interrupted check may remove its files."""

Location = Literal["anywhere", "login", "node", "job"]
Requirement = Literal["slurm", "reachable", "allowed"]


@frozen
class Check:
    """A check of a site, host or job.

    Attributes:
        name: The name of the check in the output.
        location: ``anywhere``: checks only the site file. ``login``: runs on the login node. ``node``: runs on a node,
            and in the job script on the login node. ``job``: checks a completed job and the reports of its nodes.
        run: Function that yields findings. The function's arguments are the context; for ``node``, the site and the
            node's facts; for ``job``, the context, the job and its node reports.
        needs: ``slurm``: a site with Slurm. ``reachable``: a Slurm cluster that responds. ``allowed``: a site
            whose files the user has allowed.
    """

    name: str
    location: Location
    run: Callable[..., Iterator[Finding]]
    needs: tuple[Requirement, ...] = ()


def _check_site_file(context: CheckContext) -> Iterator[Finding]:
    """Check the site file with all lint rules (`hpcrun.sites.lint.rules`)."""
    if context.not_allowed:
        yield failure("site file", context.not_allowed)
    findings = rules.lint_site(context.loaded_site)
    yield from findings
    if not (findings or context.not_allowed):
        yield ok("site file", f"{context.site.name} ({context.loaded_site.chosen_by})")


def _check_slurm(context: CheckContext) -> Iterator[Finding]:
    """Check that Slurm responds; if not, list the checks that are skipped."""
    yield from slurm_checks.check_controller(context)
    if not context.slurm_responds:
        skipped_checks = ", ".join(check.name for check in CHECKS if "reachable" in check.needs)
        yield warning("Slurm", f"skipped: {skipped_checks}", "repeat when Slurm responds")


def _check_job_script(context: CheckContext) -> Iterator[Finding]:
    """Check the environment of a job's programs by running the job script on this host."""
    if context.container and not RUNTIMES[context.container.runtime].command:
        job_or_option = "the job below" if context.in_job else "--in-job"
        yield ok("job script", f"srun starts {context.container.image}, so only {job_or_option} checks it")
        return
    try:
        context.host_report = script_probe.probe_host(context)
    except HpcrunError as reason:
        yield failure("job script", reason)
        return
    yield from check_host(context.resolved_site, context.host_report.fact_texts, in_container=bool(context.container))


def _check_nodes(context: CheckContext, _job: Run, nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    """Check all nodes; report each problem once, with the nodes on which it occurs."""
    hosts_by_finding: dict[Finding, list[str]] = {}
    for node in nodes:
        facts = {**node.fact_texts, "host": node.host, "clock skew": str(node.measured.get("skew", 0))}
        for finding in check_host(context.resolved_site, facts, in_container=bool(context.container)):
            if finding.severity != "ok":
                hosts_by_finding.setdefault(finding, []).append(node.host)
    for finding, hosts in hosts_by_finding.items():
        yield replace(finding, what=f"{finding.what} (on {fold_hosts(hosts)})")


CHECKS = (
    Check("site file", "anywhere", _check_site_file),
    Check("Slurm", "login", _check_slurm, ("slurm",)),
    Check("partitions", "login", slurm_checks.check_partitions, ("reachable",)),
    Check("limits", "login", slurm_checks.check_limits, ("reachable",)),
    Check("GPUs", "login", slurm_checks.check_gpu_types, ("reachable",)),
    Check("account", "login", accounts.check_account, ("reachable",)),
    Check("QoS", "login", accounts.check_qos, ("reachable",)),
    Check("mpi.type", "login", slurm_checks.check_mpi_type, ("reachable",)),
    Check("a job", "login", slurm_checks.check_submission, ("reachable", "allowed")),
    Check("job script", "login", _check_job_script, ("allowed",)),
    Check("run root", "login", login_host.check_run_root, ("allowed",)),
    Check("command", "login", login_host.check_command),
    Check("list of runs", "login", login_host.check_run_index),
    Check("environment", "login", login_host.check_variables),
    Check("locale", "login", login_host.check_locale),
    Check("modules", "node", job_environment.check_modules),
    Check("Python", "node", job_environment.check_python),
    Check("MPI library", "node", job_environment.check_mpi_library),
    Check("launcher", "node", job_environment.check_launcher),
    Check("XLA", "node", job_environment.check_cuda),
    Check("limits of the shell", "node", job_environment.check_ulimits),
    Check("clock", "node", job_environment.check_clock),
    Check("job", "job", in_job.check_exit),
    Check("nodes", "job", in_job.check_missing_nodes),
    Check("run root", "job", in_job.check_shared_run_root),
    Check("MPI", "job", in_job.check_mpi_world),
    Check("GPUs", "job", in_job.check_gpus),
    Check("each node", "job", _check_nodes),
)


def login_checks(context: CheckContext) -> list[Check]:
    """Return the checks of the login node, without checks that submit a job if the site's files are not allowed."""
    unmet_requirements = {"allowed"} if context.not_allowed else set()
    unmet_requirements |= {"slurm", "reachable"} if not find_scheduler(context.site.scheduler).uses_slurm else set()
    return [
        check
        for check in CHECKS
        if check.location in {"anywhere", "login"} and not unmet_requirements.intersection(check.needs)
    ]


def run_check(
    context: CheckContext, check: Check, seconds: float = 2 * TIMEOUT_SECONDS + script_probe.TIMEOUT_SECONDS
) -> list[Finding]:
    """Run one check with a timeout.

    Args:
        context: The context.
        check: One of `login_checks`.
        seconds: Timeout in seconds: a check may block forever if a file server is unreachable.
    """
    findings: list[Finding] = []
    crashes: list[BaseException] = []
    is_done = threading.Event()  # after an interrupted join() a thread counts as finished (Python 3.11)

    def collect_findings() -> None:
        try:
            if "reachable" not in check.needs or context.slurm_responds:
                findings.extend(check.run(context))
        except Exception as crashed:  # noqa: BLE001 - a check that crashes must not hide the findings of other checks
            crashes.append(crashed)
        finally:
            is_done.set()

    # a daemon thread does not delay the exit
    threading.Thread(target=collect_findings, daemon=True).start()
    try:
        is_done.wait(seconds)
    except BaseException:  # Ctrl+C, or SIGTERM
        deadline = time.monotonic() + CLEANUP_SECONDS
        while not is_done.is_set() and time.monotonic() < deadline:
            kill_running_commands()
            is_done.wait(0.1)
        raise
    if not is_done.is_set():
        fix = "a file server or a daemon does not respond: df and scontrol ping may show which"
        return [*findings, error(check.name, f"no answer in {seconds:.0f} s", fix)]
    if crashes:
        error_text = f"{type(crashes[0]).__name__}: {crashes[0]}"
        return [
            *findings,
            error(
                check.name, f"this check failed: {error_text}", "the other checks are valid; please report this crash"
            ),
        ]
    return findings


def check_host(site: Site, facts: Mapping[str, str], *, in_container: bool = False) -> Iterator[Finding]:
    """Run the checks of a host's software environment.

    Args:
        site: The site.
        facts: The facts about the host.
        in_container: Whether the facts are from inside a container, which does not contain the launcher.
    """
    facts_or_empty = defaultdict(str, facts)  # a different version of hpcrun may report fewer facts
    for check in CHECKS:
        if check.location == "node" and not (in_container and check.run is job_environment.check_launcher):
            yield from check.run(site, facts_or_empty)


def check_job(context: CheckContext, run: Run, nodes: Sequence[NodeReport]) -> list[Finding]:
    """Run the checks of a completed job and its nodes.

    Args:
        context: The context.
        run: The job.
        nodes: The reports from `hpcrun.doctor.in_job.wait_for_node_reports`.
    """
    return [finding for check in CHECKS if check.location == "job" for finding in check.run(context, run, nodes)]


def find_node_problems(context: CheckContext, run: Run, nodes: Sequence[NodeReport]) -> list[Finding]:
    """Return the warnings and errors about the nodes of a job, and about differences between them."""
    findings = [*in_job.check_gpus(context, run, nodes), *_check_nodes(context, run, nodes)]
    findings += node_differences.warn_of_differences(node_differences.compare_hosts(nodes, None))
    return [finding for finding in findings if finding.severity != "ok"]
