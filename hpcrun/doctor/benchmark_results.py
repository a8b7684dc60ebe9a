"""The results of a site's benchmark, from the files in its run directory."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hpcrun.doctor.benchmark_records import BenchmarkRecord
from hpcrun.finding import error, ok
from hpcrun.jobs.result_format import format_value
from hpcrun.paths import user_name
from hpcrun.version import __version__

if TYPE_CHECKING:
    from hpcrun.doctor.benchmark_records import Metrics
    from hpcrun.finding import Finding
    from hpcrun.jobs.runs import Run

FILES = {"ranks": "ranks.json", "allreduce": "allreduce.json", "nodes": "nodes.json"}
"""The file that rank 0 writes after each step, in order (`workloads/allreduce`)."""


STEPS = ("job", *FILES, "end")
STATES = {"ok": "ok", "warning": "slow", "error": "FAILED"}
"""The state of a step by severity."""


def read_step(run: Run, step: str) -> Any:
    """Return the results of a step, or None while it is not done."""
    with suppress(OSError, ValueError):
        return json.loads((run.directory / FILES[step]).read_text())
    return None


def describe_job(run: Run) -> str:
    """Return the job's id, nodes and waiting time, as far as they are known."""
    starts = run.nodes()
    record = run.exit_record()
    waited = f", waited {max(0, record.started - run.submission.submitted):.0f} s" if record else ""
    return f"job {run.job_id}" + (f" on {starts[-1]}" if starts else "") + waited


def describe_step(step: str, found: Any) -> str:
    """Describe the results of a step.

    Args:
        step: The step's name.
        found: Its results.
    """
    if step == "ranks":
        hosts = list(dict.fromkeys(rank["host"] for rank in found))
        libraries = " and ".join(dict.fromkeys(rank["mpi"] for rank in found))
        return f"{pluralize(len(found), 'rank')} on {pluralize(len(hosts), 'node')}, {libraries}"
    if step == "allreduce":
        figures = allreduce_metrics(found)
        rate = figures.get("bandwidth_GBps")
        between = f", bandwidth {format_value(rate)} GB/s" if rate else ": one rank only"
        return f"latency {format_value(figures['latency_us'])} us{between}"
    nodes, pairs = found["nodes"].values(), found["pairs"]
    ranges = [_format_range("compute", [node["compute_GFLOPS"] for node in nodes], "GFLOPS")]
    ranges += [_format_range("memory", [node["memory_GBps"] for node in nodes], "GB/s")]
    ranges += [_format_range("between nodes", [pair["bandwidth_GBps"] for pair in pairs], "GB/s")] if pairs else []
    return ", ".join(ranges)


def _format_range(name: str, values: list[float], unit: str) -> str:
    low, high = format_value(min(values)), format_value(max(values))
    return f"{name} {low if low == high else f'{low} to {high}'} {unit}"


def pluralize(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 node``, ``2 nodes``."""
    return f"{number} {noun}{'s' * (number != 1)}"


def allreduce_metrics(found: Any) -> Metrics:
    """Return the latency, and the best bus bandwidth if there are several ranks."""
    sizes = found["sizes"]
    rates = [row["busbw_GBps"] for row in sizes if row["busbw_GBps"]]
    return {"latency_us": sizes[0]["median_us"], **({"bandwidth_GBps": max(rates)} if rates else {})}


def node_metrics(found: Any) -> dict[str, Metrics]:
    """Return each node's metrics; those of its best pair, because a slow node makes all its pairs slow."""
    nodes = {
        name: {key: node[key] for key in ("compute_GFLOPS", "memory_GBps")} for name, node in found["nodes"].items()
    }
    for pair in found["pairs"]:
        for name in pair["nodes"]:
            node = nodes[name]
            node["latency_us"] = min(pair["latency_us"], node.get("latency_us", pair["latency_us"]))
            node["bandwidth_GBps"] = max(pair["bandwidth_GBps"], node.get("bandwidth_GBps", 0.0))
    return nodes


def create_steps(run: Run, failed: str = "", fix: str = "") -> list[Finding]:
    """Return the steps of a completed test, up to the failed one.

    Args:
        run: Its job.
        failed: Why it failed; empty if it succeeded.
        fix: How to correct it.
    """
    found = {name: read_step(run, name) for name in FILES}
    done = [ok("job", describe_job(run))] if run.start_count() else []
    done += [ok(name, describe_step(name, one)) for name, one in found.items() if one and run.start_count()]
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
    ranks = read_step(run, "ranks") or []
    measured, nodes = read_step(run, "allreduce"), read_step(run, "nodes")
    resources = run.spec.resources.to_resources()
    versions = {"hpcrun": __version__, **({"slurm": slurm} if slurm else {})}
    for name in ("mpi", "python", "kernel", "network"):
        if here := ", ".join(dict.fromkeys(rank[name] for rank in ranks if rank[name])):
            versions[name] = here
    return BenchmarkRecord(
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        site=run.spec.site.name,
        user=user_name(),
        job_id=run.job_id or "",
        partition=resources.partition or "",
        nodes=len({rank["host"] for rank in ranks}) or resources.nodes or 1,
        ranks=len(ranks) or resources.ranks,
        nodelist=next(reversed(run.nodes()), "") or " ".join(dict.fromkeys(rank["host"] for rank in ranks)),
        failed=failed,
        versions=versions,
        figures=allreduce_metrics(measured) if measured else {},
        of_nodes=node_metrics(nodes) if nodes else {},
    )
