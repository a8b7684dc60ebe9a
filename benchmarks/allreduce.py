"""Benchmark of hpcrun.train's communication against plain MPI, Horovod and MultiWorkerMirroredStrategy.

    make bench
    python benchmarks/allreduce.py --quick --only steps --model lenet5
    python benchmarks/allreduce.py --only hosts --setting HPCRUN_COMPRESS=bf16 --setting HPCRUN_OVERLAP=1

The cost of communication is the median, over rounds, of the time of a step with communication minus that of a step
without communication in the same round, so that other load on the machine affects both steps equally. If
`tools/horovod.sh` has built Horovod, it runs in a separate job, because its thread needs a core. The hosts in the last
section are namespaces of this machine, and share its cores (tests/cluster, which needs root).
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.training.launch import JobError, Launcher, launch_on_hosts, launch_on_this_host  # noqa: E402
from tests.cluster import Cluster, Config, unavailable_reason  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

HOROVOD = ROOT / ".venv-horovod"
HOROVOD_SETTINGS = (
    (128, 1.0),
    (128, 0.1),
    (16, 1.0),
    (2, 0.1),
)  # Horovod's fusion threshold in MB and cycle time in ms; its defaults first
BASELINE_VARIANT = "bare:2048"
CHUNK_SIZES = ("bare:512", BASELINE_VARIANT, "bare:8192", "bare:32768", "bare:0")
VARIANT_NAMES = {"hpcrun": "hpcrun", "mwms": "MultiWorkerMirroredStrategy", "bare:0": "MPI_Allreduce in one chunk"}
RATES = ("norate", "10gbit", "1gbit")


@dataclass(frozen=True)
class Effort:
    """The length of the measurement.

    Attributes:
        rounds: The number of rounds of ResNet-50's steps.
        quick: Whether to measure a quick subset.
    """

    rounds: int
    quick: bool

    def steps(self, model: str) -> int:
        """Return the number of rounds; steps of LeNet-5 are short, so they need more rounds."""
        return self.rounds * (50 if model == "lenet5" else 1)

    def epochs(self, model: str) -> list[object]:
        """Return the options of `epochs.py`."""
        rounds = max(1, self.rounds // (2 if model == "lenet5" else 6))
        return ["--rounds", rounds, "--steps", 100 if model == "lenet5" else 10]


@dataclass(frozen=True)
class Cost:
    """The communication time of a step, in ms.

    Attributes:
        low: The first quartile of all rounds.
        median: The median of all rounds.
        high: The third quartile of all rounds.
    """

    low: float
    median: float
    high: float


def communication_costs(result: dict[str, Any]) -> dict[str, Cost]:
    """Return the communication cost of every variant that `steps.py` measured."""
    times = result["times"]
    zeros = [0.0] * len(times["none"])
    found = {}
    for name in times.keys() - {"none"}:
        without = zeros if name.startswith("bare") else times["none"]
        differences = [(a - b) * 1000 for a, b in zip(times[name], without, strict=True)]
        found[name] = Cost(*statistics.quantiles(differences, n=4))
    return found


def print_heading(name: str, result: dict[str, Any]) -> None:
    """Print the heading of a table."""
    step, size = statistics.median(result["times"]["none"]) * 1000, result["values"] * 4 / 1e6
    print(f"\n{name}, batch of {result['batch']} per rank: {step:.1f} ms per step, {size:.3g} MB of gradients")
    print(f"{'communication':44} {'ms (middle half)':>28}  {': baseline':>9}  {'hpcrun : it':>11}  goal", flush=True)


def print_row(name: str, cost: Cost, baseline: Cost, hpcrun_cost: Cost | None = None, goal: str = "") -> None:
    """Print one row of a table.

    Args:
        name: The row's name.
        cost: The communication cost.
        baseline: The cost of plain MPI_Allreduce.
        hpcrun_cost: The cost of hpcrun, in rows of other libraries.
        goal: The goal.
    """
    range_text = f"({cost.low:.2f} - {cost.high:.2f})"
    ratio = f"{hpcrun_cost.median / cost.median:.2f} x" if hpcrun_cost else ""
    of_baseline = f"{cost.median / baseline.median:.2f} x"
    print(f"{name:44} {cost.median:9.2f} {range_text:>18}  {of_baseline:>9}  {ratio:>11}  {goal}".rstrip(), flush=True)


def variant_name(variant: str) -> str:
    """Return the row name of a variant of plain MPI_Allreduce."""
    return VARIANT_NAMES.get(variant) or f"MPI_Allreduce in chunks of {int(variant.removeprefix('bare:')) / 1024:g} MB"


def benchmark_steps(model: str, effort: Effort, settings: list[dict[str, str]]) -> None:
    """Benchmark two ranks on this machine: plain MPI, hpcrun (also with settings), and other libraries."""
    rounds: list[object] = ["--rounds", effort.steps(model)]
    result = launch_on_this_host()(2, "steps.py", model, "none", BASELINE_VARIANT, "hpcrun", "mwms", *rounds)
    found, is_resnet50 = communication_costs(result), model == "resnet50"
    baseline, hpcrun_cost = found[BASELINE_VARIANT], found["hpcrun"]
    print_heading(f"{model}, 2 ranks on this machine with {os.cpu_count()} cores, a thread each", result)
    print_row(f"{variant_name(BASELINE_VARIANT)} (baseline)", baseline, baseline)
    print_row("hpcrun", hpcrun_cost, baseline, goal="at most 2.0 x the baseline" if is_resnet50 else "at most 0.25 ms")
    print_row(VARIANT_NAMES["mwms"], found["mwms"], baseline, hpcrun_cost, "at most 0.1 x" if is_resnet50 else "")
    if (HOROVOD / "bin/python").exists():
        tuned = {}
        for megabytes, cycle in HOROVOD_SETTINGS[: 1 if effort.quick else None]:
            tuning = {"HOROVOD_FUSION_THRESHOLD": str(megabytes * 2**20), "HOROVOD_CYCLE_TIME": str(cycle)}
            job = launch_on_this_host(HOROVOD)(2, "steps.py", model, "none", "horovod", *rounds, **tuning)
            tuned[f"{megabytes} MB, {cycle:g} ms"] = communication_costs(job)["horovod"]
        best = min(tuned, key=lambda name: tuned[name].median)
        name = f"Horovod, best of {len(tuned)} ({best})"
        print_row(name, tuned[best], baseline, hpcrun_cost, "at most 0.45 x" if is_resnet50 else "")
    else:
        print("Horovod                                      SKIP: bash tools/horovod.sh builds it")
    print_settings(
        settings, launch_on_this_host(), [model, "none", BASELINE_VARIANT, "hpcrun", *rounds], BASELINE_VARIANT
    )


def print_settings(settings: list[dict[str, str]], launch: Launcher, argv: list[object], baseline: str) -> None:
    """Print a row for hpcrun with each of the settings, in separate jobs.

    Args:
        settings: Environment variables.
        launch: Starts the ranks.
        argv: The arguments of `steps.py`.
        baseline: The plain-MPI variant to compare with.
    """
    for setting in settings:
        found = communication_costs(launch(2, "steps.py", *argv, **setting))
        name = " ".join(f"{name.removeprefix('HPCRUN_')}={value}" for name, value in setting.items())
        print_row(f"hpcrun, {name}", found["hpcrun"], found[baseline])


def benchmark_one_rank(model: str, effort: Effort, _: list[dict[str, str]]) -> None:
    """Benchmark one rank: `fit` of Keras and of hpcrun.train.Model, alternately in one process."""
    result = launch_on_this_host()(1, "epochs.py", model, "keras", "hpcrun", *effort.epochs(model))
    keras_time, hpcrun_time = (statistics.median(result["times"][kind]) * 1000 for kind in ("keras", "hpcrun"))
    print(f"\n{model}, 1 rank: hpcrun.train.Model beside Keras")
    print(f"{'':44} {'hpcrun':>9}  {'Keras':>9}  {'':>10}  goal")
    times = f"{hpcrun_time:6.0f} ms  {keras_time:6.0f} ms  {hpcrun_time / keras_time:8.3f} x"
    print(f"{'an epoch of fit':44} {times}  at most 1.02 x")
    for key, name in {"return": "from the last step to fit's return", "cpu": "CPU time in the 2 s after it"}.items():
        keras_time, hpcrun_time = (result["endings"][kind][key] * 1000 for kind in ("keras", "hpcrun"))
        print(f"{name:44} {hpcrun_time:6.0f} ms  {keras_time:6.0f} ms", flush=True)


def benchmark_scaling(model: str, effort: Effort, _: list[dict[str, str]]) -> None:
    """Benchmark `fit` with one, two and four ranks, each with one thread and the same batch size."""
    cores, first = os.cpu_count() or 1, 0.0
    print(f"\n{model}, hpcrun.train.Model.fit on this machine with {cores} cores, a thread per rank")
    print(f"{'ranks':>5}  {'images/s':>9}  {'efficiency':>10}  {'fit returns after':>17}  CPU time in the 2 s after it")
    for ranks in (1, 2, 4):
        result = launch_on_this_host()(ranks, "epochs.py", model, "hpcrun", *effort.epochs(model))
        speed = result["images"] / statistics.median(result["times"]["hpcrun"])
        first = first or speed
        efficiency, end = speed / first / min(ranks, cores), result["endings"]["hpcrun"]
        crowded = f"  ({ranks} ranks on {cores} cores)" if ranks > cores else ""
        print(
            f"{ranks:5}  {speed:9.0f}  {efficiency:10.2f}  {end['return'] * 1000:14.0f} ms"
            f"  {end['cpu'] * 1000:.0f} ms{crowded}",
            flush=True,
        )


def benchmark_hosts(model: str, effort: Effort, settings: list[dict[str, str]]) -> None:
    """Benchmark one rank on each of two hosts: the best chunk size for TCP, at several link speeds."""
    if reason := unavailable_reason():
        print(f"\n{model}, 2 hosts{'':28}SKIP: {reason}")
        return
    sizes = CHUNK_SIZES if model == "resnet50" else ("bare:0",)
    with Cluster(Config("bench", accounting=False)) as cluster:
        launch = launch_on_hosts(cluster.environ)
        # Throttled links pass the first 256 kB at once (tests/cluster/network.py), which is all that LeNet-5 sends.
        for rate in RATES[: 1 if model == "lenet5" else 2 if effort.quick else None]:
            for node in cluster.nodelist:
                cluster.link(node, rate)
            # At 1 Gbit/s, few rounds suffice: sending ResNet-50's gradients takes a second, with little variation.
            rounds: list[object] = ["--rounds", max(3, effort.steps(model) // (5 if rate == "1gbit" else 1))]
            result = launch(2, "steps.py", model, "none", *sizes, "hpcrun", "mwms", *rounds)
            found = communication_costs(result)
            best = min(sizes, key=lambda size: found[size].median)
            baseline = found[best]
            print_heading(f"{model}, 2 hosts of a rank, links of {rate.replace('norate', 'no limit')}", result)
            for size in sizes:
                print_row(variant_name(size), found[size], baseline)
            print_row("hpcrun", found["hpcrun"], baseline)
            print_row(VARIANT_NAMES["mwms"], found["mwms"], baseline, found["hpcrun"])
            print_settings(settings, launch, [model, "none", best, "hpcrun", *rounds], best)


SECTIONS: dict[str, Callable[[str, Effort, list[dict[str, str]]], None]] = {
    "steps": benchmark_steps,
    "one-rank": benchmark_one_rank,
    "scaling": benchmark_scaling,
    "hosts": benchmark_hosts,
}


def parse_setting(text: str) -> dict[str, str]:
    """Parse NAME=VALUE[,NAME=VALUE...]."""
    return dict(pair.split("=", 1) for pair in text.split(","))


def main() -> None:
    """Run the sections given on the command line; by default, all."""
    parser = argparse.ArgumentParser(description="Benchmark the communication of hpcrun.train and its peers.")
    parser.add_argument("--model", action="append", choices=["resnet50", "lenet5"], help="may be repeated (both)")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="a section; may be repeated (all)")
    parser.add_argument("--rounds", type=int, help="rounds of ResNet-50's steps (30)")
    parser.add_argument("--quick", action="store_true", help="few rounds, one setting of Horovod, no link of 1 Gbit/s")
    parser.add_argument(
        "--setting",
        type=parse_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE[,...]",
        help="also measure hpcrun with these environment variables; may be repeated",
    )
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # exit normally, which ends the child processes
    effort = Effort(args.rounds or (4 if args.quick else 30), args.quick)
    if (load := os.getloadavg()[0]) > 0.5:
        print(f"WARNING: the machine is busy (load {load:.1f}): the results are unreliable", file=sys.stderr)
    failed = False
    for section in args.only or SECTIONS:
        for model in args.model or ["resnet50", "lenet5"]:
            try:
                SECTIONS[section](model, effort, args.setting)
            except JobError as error:
                failed = True
                print(f"\n{model}, {section}: FAILED: {error}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
