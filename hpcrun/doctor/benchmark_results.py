"""The results of a site's benchmark, from the files in the run directory."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hpcrun.doctor.benchmark_files import read_allreduce, read_nodes, read_ranks
from hpcrun.doctor.benchmark_records import BenchmarkRecord
from hpcrun.errors import pluralize
from hpcrun.finding import error, ok
from hpcrun.jobs.result_format import format_value
from hpcrun.paths import user_name
from hpcrun.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcrun.doctor.benchmark_files import AllreduceTimes, BenchmarkRank, NodeSpeeds
    from hpcrun.doctor.benchmark_records import Metrics
    from hpcrun.finding import Finding
    from hpcrun.jobs.runs import Run

RESULT_STEPS = ("ranks", "allreduce", "nodes")
"""The benchmark steps that end with a result file of rank 0, in order; see `hpcrun.doctor.benchmark_files`."""

STEPS = ("job", *RESULT_STEPS, "end")
STATE_BY_SEVERITY = {"ok": "ok", "warning": "slow", "error": "FAILED"}
"""The state of a step, by the severity of its finding."""


def describe_job(run: Run) -> str:
    """Describe a job by its id, nodes and queue time, as far as they are known."""
    nodes_of_starts = run.nodes()
    record = run.exit_record()
    queue_time = f", waited {max(0, record.started - run.submission.submitted):.0f} s" if record else ""
    return f"job {run.job_id}" + (f" on {nodes_of_starts[-1]}" if nodes_of_starts else "") + queue_time


def describe_step(run: Run, step: str) -> str | None:
    """Describe the results of a benchmark step; None if the step is not complete.

    Args:
        run: The benchmark's job.
        step: The step's name, one of `RESULT_STEPS`.
    """
    if step == "ranks":
        return _describe_ranks(read_ranks(run))
    if step == "allreduce":
        times = read_allreduce(run)
        return _describe_allreduce(times) if times else None
    speeds = read_nodes(run)
    return _describe_nodes(speeds) if speeds else None


def _describe_ranks(ranks: Sequence[BenchmarkRank]) -> str | None:
    hosts = {rank.host for rank in ranks}
    libraries = " and ".join(dict.fromkeys(rank.mpi for rank in ranks))
    return f"{pluralize(len(ranks), 'rank')} on {pluralize(len(hosts), 'node')}, {libraries}" if ranks else None


def _describe_allreduce(times: AllreduceTimes) -> str:
    metrics = allreduce_metrics(times)
    bandwidth = metrics.get("bandwidth_GBps")
    bandwidth_text = f", bandwidth {format_value(bandwidth)} GB/s" if bandwidth else ": one rank only"
    return f"latency {format_value(metrics['latency_us'])} us{bandwidth_text}"


def _describe_nodes(speeds: NodeSpeeds) -> str:
    nodes, pairs = speeds.nodes.values(), speeds.pairs
    ranges = [_format_range("compute", [node.compute_GFLOPS for node in nodes], "GFLOPS")]
    ranges += [_format_range("memory", [node.memory_GBps for node in nodes], "GB/s")]
    ranges += [_format_range("between nodes", [pair.bandwidth_GBps for pair in pairs], "GB/s")] if pairs else []
    return ", ".join(ranges)


def _format_range(name: str, values: list[float], unit: str) -> str:
    low, high = format_value(min(values)), format_value(max(values))
    return f"{name} {low if low == high else f'{low} to {high}'} {unit}"


def allreduce_metrics(times: AllreduceTimes) -> Metrics:
    """Return the latency, and, with several ranks, the highest bus bandwidth."""
    bandwidths = [size.busbw_GBps for size in times.sizes if size.busbw_GBps]
    return {"latency_us": times.sizes[0].median_us, **({"bandwidth_GBps": max(bandwidths)} if bandwidths else {})}


def node_metrics(speeds: NodeSpeeds) -> dict[str, Metrics]:
    """Return the metrics by node.

    The network metrics of a node are the metrics of its best pair, because a slow node makes all its pairs slow.
    """
    metrics_by_node = {name: asdict(node) for name, node in speeds.nodes.items()}
    for pair in speeds.pairs:
        for node in (metrics_by_node[name] for name in pair.nodes if name in metrics_by_node):
            node["latency_us"] = min(pair.latency_us, node.get("latency_us", pair.latency_us))
            node["bandwidth_GBps"] = max(pair.bandwidth_GBps, node.get("bandwidth_GBps", 0.0))
    return metrics_by_node


def create_steps(run: Run, reason: str = "", fix: str = "") -> list[Finding]:
    """Return a finding for each step of a completed benchmark, up to the failed step.

    Args:
        run: The benchmark's job.
        reason: The reason why the benchmark failed; empty if it succeeded.
        fix: How to correct the failure.
    """
    descriptions = {name: describe_step(run, name) for name in RESULT_STEPS}
    completed_steps = [ok("job", describe_job(run))] if run.start_count() else []
    completed_steps += [ok(name, text) for name, text in descriptions.items() if text and run.start_count()]
    return [*completed_steps, error(STEPS[len(completed_steps)], reason, fix) if reason else ok("end", "exit code 0")]


def step_table(steps: list[Finding]) -> list[tuple[str, str, str]]:
    """Return the name, state and result of each benchmark step; state and result are empty before a step has run."""
    rows = [(step.check, STATE_BY_SEVERITY[step.severity], step.what) for step in steps]
    return rows + [(name, "", "") for name in STEPS[STEPS.index(steps[-1].check) + 1 :]]


def create_record(run: Run, slurm_version: str | None, failed_step: str = "") -> BenchmarkRecord:
    """Create the record of a benchmark.

    Args:
        run: The benchmark's job.
        slurm_version: Slurm's version; None without Slurm.
        failed_step: The name of the failed step; empty if the benchmark succeeded.
    """
    ranks, allreduce_times, node_speeds = read_ranks(run), read_allreduce(run), read_nodes(run)
    resources = run.spec.resources.to_resources()
    versions = {"hpcrun": __version__, **({"slurm": slurm_version} if slurm_version else {})}
    for name in ("mpi", "python", "kernel", "network"):
        if names := ", ".join(dict.fromkeys(filter(None, (getattr(rank, name) for rank in ranks)))):
            versions[name] = names
    return BenchmarkRecord(
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        site=run.spec.site.name,
        user=user_name(),
        job_id=run.job_id or "",
        partition=resources.partition or "",
        nodes=len({rank.host for rank in ranks}) or resources.nodes or 1,
        ranks=len(ranks) or resources.ranks,
        nodelist=next(reversed(run.nodes()), "") or " ".join(dict.fromkeys(rank.host for rank in ranks)),
        failed=failed_step,
        versions=versions,
        figures=allreduce_metrics(allreduce_times) if allreduce_times else {},
        of_nodes=node_metrics(node_speeds) if node_speeds else {},
    )
