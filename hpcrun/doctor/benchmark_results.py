"""The results of a site's benchmark, from the files in its run directory."""

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
"""The steps after each of which rank 0 writes a file, in order; see `hpcrun.doctor.benchmark_files`."""

STEPS = ("job", *RESULT_STEPS, "end")
STATES = {"ok": "ok", "warning": "slow", "error": "FAILED"}
"""The state of a step by severity."""


def describe_job(run: Run) -> str:
    """Return the job's id, nodes and waiting time, as far as they are known."""
    starts = run.nodes()
    record = run.exit_record()
    waited = f", waited {max(0, record.started - run.submission.submitted):.0f} s" if record else ""
    return f"job {run.job_id}" + (f" on {starts[-1]}" if starts else "") + waited


def describe_step(run: Run, step: str) -> str | None:
    """Describe the results of a step; None while it is not done.

    Args:
        run: The job.
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
    figures = allreduce_metrics(times)
    rate = figures.get("bandwidth_GBps")
    between = f", bandwidth {format_value(rate)} GB/s" if rate else ": one rank only"
    return f"latency {format_value(figures['latency_us'])} us{between}"


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
    """Return the latency, and the best bus bandwidth if there are several ranks."""
    rates = [size.busbw_GBps for size in times.sizes if size.busbw_GBps]
    return {"latency_us": times.sizes[0].median_us, **({"bandwidth_GBps": max(rates)} if rates else {})}


def node_metrics(speeds: NodeSpeeds) -> dict[str, Metrics]:
    """Return each node's metrics; those of its best pair, because a slow node makes all its pairs slow."""
    nodes = {name: asdict(node) for name, node in speeds.nodes.items()}
    for pair in speeds.pairs:
        for node in (nodes[name] for name in pair.nodes if name in nodes):
            node["latency_us"] = min(pair.latency_us, node.get("latency_us", pair.latency_us))
            node["bandwidth_GBps"] = max(pair.bandwidth_GBps, node.get("bandwidth_GBps", 0.0))
    return nodes


def create_steps(run: Run, failed: str = "", fix: str = "") -> list[Finding]:
    """Return the steps of a completed test, up to the failed one.

    Args:
        run: Its job.
        failed: Why it failed; empty if it succeeded.
        fix: How to correct it.
    """
    found = {name: describe_step(run, name) for name in RESULT_STEPS}
    done = [ok("job", describe_job(run))] if run.start_count() else []
    done += [ok(name, text) for name, text in found.items() if text and run.start_count()]
    return [*done, error(STEPS[len(done)], failed, fix) if failed else ok("end", "exit code 0")]


def step_table(found: list[Finding]) -> list[tuple[str, str, str]]:
    """Return the name, state and result of each step; empty for steps that did not run."""
    rows = [(step.check, STATES[step.severity], step.what) for step in found]
    return rows + [(name, "", "") for name in STEPS[STEPS.index(found[-1].check) + 1 :]]


def create_record(run: Run, slurm: str | None, failed: str = "") -> BenchmarkRecord:
    """Create the record of a test.

    Args:
        run: Its job.
        slurm: Slurm's version.
        failed: The failed step.
    """
    ranks, measured, nodes = read_ranks(run), read_allreduce(run), read_nodes(run)
    resources = run.spec.resources.to_resources()
    versions = {"hpcrun": __version__, **({"slurm": slurm} if slurm else {})}
    for name in ("mpi", "python", "kernel", "network"):
        if here := ", ".join(dict.fromkeys(filter(None, (getattr(rank, name) for rank in ranks)))):
            versions[name] = here
    return BenchmarkRecord(
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        site=run.spec.site.name,
        user=user_name(),
        job_id=run.job_id or "",
        partition=resources.partition or "",
        nodes=len({rank.host for rank in ranks}) or resources.nodes or 1,
        ranks=len(ranks) or resources.ranks,
        nodelist=next(reversed(run.nodes()), "") or " ".join(dict.fromkeys(rank.host for rank in ranks)),
        failed=failed,
        versions=versions,
        figures=allreduce_metrics(measured) if measured else {},
        of_nodes=node_metrics(nodes) if nodes else {},
    )
