"""The node reports from the job of ``hpcrun doctor --in-job``, and the checks of that job."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from hpcrun import launchers, nodelist
from hpcrun.doctor import site_job
from hpcrun.doctor.node_probe import REPORT_FOLDER
from hpcrun.doctor.node_report import read_report
from hpcrun.finding import Finding, error, ok, warning
from hpcrun.nodelist import fold_hosts
from hpcrun.sites.lint.mpi import matching_mpi_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpcrun.doctor.context import CheckContext
    from hpcrun.doctor.node_report import NodeReport
    from hpcrun.jobs.runs import Run


def read_node_reports(job: Run) -> list[NodeReport]:
    """Return the node reports that this host sees in a job's run directory, sorted by host name."""
    reports = filter(None, map(read_report, (job.directory / REPORT_FOLDER).glob("*.json")))
    return sorted(reports, key=lambda one: nodelist.host_sort_key(one.host))


def wait_for_node_reports(job: Run) -> list[NodeReport]:
    """Wait for one report per rank, and return the reports, sorted by host name."""
    site_job.wait_for_results(job, lambda: len(read_node_reports(job)) >= (job.spec.resources.ntasks or 1))
    return read_node_reports(job)


def check_exit(_context: CheckContext, job: Run, _nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    """Check the exit code of the job of ``doctor --in-job``."""
    from hpcrun.why.explanation import explain

    record = job.end_record()
    if record and record.exit_code == 0:
        yield ok("job", f"{job.job_id} on {', '.join(job.nodes()) or record.host}, {record.seconds} s")
        return
    explanation, log = explain(job), job.log()
    if explanation.state.name != "CANCELLED" and not job.start_count() and not (log and log.exists()):
        problem = f"job {job.job_id} started, but its node wrote nothing to {job.directory}"
        yield error("run root", problem, "run_root must be on a file system that all nodes share, and writable by you")
        return
    evidence = "; ".join(line.line for line in explanation.diagnosis.evidence[:2])
    fix = explanation.diagnosis.fix or f"hpcrun logs {job.job_id} shows its output"
    yield error("job", f"{explanation.headline}{f' ({evidence})' if evidence else ''}", fix)


def check_missing_nodes(_context: CheckContext, job: Run, nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    """Check that each node of the job has written a report."""
    hosts = [node.host for node in nodes]
    if not hosts:  # check_exit reports this case
        return
    job_nodes = [name for nodes in job.nodes()[-1:] for name in nodelist.expand_nodelist(nodes)]
    short_names = {host.partition(".")[0] for host in hosts}
    if missing_nodes := [name for name in job_nodes if name.partition(".")[0] not in short_names]:
        fix = f"hpcrun logs {job.job_id} shows why; without a shared run root, their ranks cannot start"
        yield error("nodes", f"{fold_hosts(missing_nodes)} did not report", fix)


def check_shared_run_root(_context: CheckContext, _job: Run, nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    """Check that all nodes see a file that rank 0 writes to the run root."""
    testing_nodes = [node for node in nodes if node.sees_rank_0 is not None]
    if blind_hosts := [node.host for node in testing_nodes if not node.sees_rank_0]:
        fix = "run_root must be on a file system that all nodes share"
        yield error("run root", f"{fold_hosts(blind_hosts)} does not see the file that rank 0 wrote", fix)
    elif testing_nodes:
        yield ok("run root", f"shared by {fold_hosts(node.host for node in testing_nodes)}")


def check_mpi_world(context: CheckContext, _job: Run, nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    """Check that MPI_COMM_WORLD contains all ranks of the job."""
    worlds = [(node.host, node.ranks) for node in nodes if node.ranks]
    too_small_world_sizes = {host: ranks.size for host, ranks in worlds if ranks.size and ranks.size < ranks.expected}
    failures = {host: ranks.failure for host, ranks in worlds if ranks.size is None}
    if failures:
        fix = "hpcrun logs last shows MPI's error; mpi.library, mpi.type and launcher must match"
        yield error("MPI", f"{', '.join(dict.fromkeys(failures.values()))} on {fold_hosts(failures)}", fix)
    elif too_small_world_sizes:
        mpi, size, expected_size = context.resolved_site.mpi, min(too_small_world_sizes.values()), worlds[0][1].expected
        matching_type = matching_mpi_type(mpi.library) or "a type that the library supports"
        fix = f'set mpi.type = "{matching_type}" (srun --mpi=list prints the available types)'
        launcher = launchers.site_launcher(context.resolved_site)
        if not launcher.uses_slurm:
            fix = f"{launcher.name} does not belong to the jobs' MPI library: see mpi.library and launcher"
        world_size = "one rank" if size == 1 else f"{size} ranks"
        problem = (
            f"each of {expected_size} ranks is in an MPI world of {world_size}, on {fold_hosts(too_small_world_sizes)}"
        )
        yield error("MPI", f"{problem} (mpi.type is {mpi.type})", fix)
    elif worlds:
        yield ok("MPI", f"{worlds[0][1].size} ranks in one world")


def check_gpus(context: CheckContext, job: Run, nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    """Check that the ranks see all GPUs that Slurm allocated."""
    resources = job.spec.resources.to_resources()
    if not resources.gpus or context.resolved_site.gpu.vendor not in {None, "nvidia"}:
        return
    hosts_by_count = defaultdict[int, list[str]](list)
    for node in nodes:
        if node.gpus is not None:  # Slurm may not hide unallocated GPUs
            hosts_by_count[node.gpus].append(node.host)
    for count, hosts in sorted(hosts_by_count.items()):
        if count < resources.gpus:
            visible_gpus = f"nvidia-smi shows {count or 'none'} on {fold_hosts(hosts)}"
            problem = f"Slurm allocated --gpus-per-node={resources.gpus_per_node}, but {visible_gpus}"
            fix = (
                "a GPU may have failed: tell the administrators; nvidia-smi counts a GPU with MIG instances as one GPU"
            )
            if not count:
                fix = "tell the administrators that the driver does not work, or set gpu.vendor"
            yield warning("GPUs", problem, fix)
