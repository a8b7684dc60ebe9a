"""What hpcrun.train's communication costs, beside MPI's limit, Horovod and MultiWorkerMirroredStrategy, in one run.

    make bench
    python benchmarks/allreduce.py --quick --only steps --model lenet5
    python benchmarks/allreduce.py --only hosts --setting HPCRUN_WIRE=bfloat16 --setting HPCRUN_OVERLAP=1

The cost of communication is the median, over rounds, of a step with it less a step without it in the same round, so
that whatever else the machine does hits both alike. Horovod, whose thread wants a core of its own, runs in a job of its
own, where `tools/horovod.sh` has built it. The hosts of the last section are namespaces of this machine (tests/cluster,
which needs root), and share its cores.
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

from benchmarks.training.launch import JobError, Launcher, across, here  # noqa: E402
from tests.cluster import Cluster, Config, unavailable_reason  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

HOROVOD = ROOT / ".venv-horovod"
TUNINGS = (
    (128, 1.0),
    (128, 0.1),
    (16, 1.0),
    (2, 0.1),
)  # fusion threshold in MB and cycle time in ms; its defaults first
LIMIT = "bare:2048"
PIECES = ("bare:512", LIMIT, "bare:8192", "bare:32768", "bare:0")
NAMES = {"hpcrun": "hpcrun", "mwms": "MultiWorkerMirroredStrategy", "bare:0": "MPI_Allreduce of all at once"}
RATES = ("norate", "10gbit", "1gbit")


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes:
        rounds: Of ResNet-50's steps.
        quick: Whether it is to be over soon.
    """

    rounds: int
    quick: bool

    def steps(self, model: str) -> int:
        """Return the rounds of steps; LeNet-5's take 4 ms, of which communication is a small part."""
        return self.rounds * (50 if model == "lenet5" else 1)

    def epochs(self, model: str) -> list[object]:
        """Return how much `epochs.py` has to do."""
        rounds = max(1, self.rounds // (2 if model == "lenet5" else 6))
        return ["--rounds", rounds, "--steps", 100 if model == "lenet5" else 10]


@dataclass(frozen=True)
class Cost:
    """What communication takes of a step, in ms.

    Attributes:
        low: The first quartile of all rounds.
        median: Their median.
        high: The third quartile.
    """

    low: float
    median: float
    high: float


def costs(result: dict[str, Any]) -> dict[str, Cost]:
    """Return the cost of every variant that `steps.py` measured."""
    times = result["times"]
    nothing = [0.0] * len(times["none"])
    found = {}
    for name in times.keys() - {"none"}:
        without = nothing if name.startswith("bare") else times["none"]
        more = [(a - b) * 1000 for a, b in zip(times[name], without, strict=True)]
        found[name] = Cost(*statistics.quantiles(more, n=4))
    return found


def heading(what: str, result: dict[str, Any]) -> None:
    """Print what a table is about."""
    step, size = statistics.median(result["times"]["none"]) * 1000, result["values"] * 4 / 1e6
    print(f"\n{what}, batch of {result['batch']} a rank: {step:.1f} ms a step, {size:.3g} MB of gradients")
    print(f"{'communication':44} {'ms (middle half)':>28}  {': limit':>9}  {'hpcrun : it':>11}  goal", flush=True)


def row(what: str, cost: Cost, limit: Cost, ours: Cost | None = None, goal: str = "") -> None:
    """Print one line of a table.

    Args:
        what: Its name.
        cost: What it takes.
        limit: What MPI_Allreduce alone takes.
        ours: What hpcrun takes, where this is a peer of hpcrun's.
        goal: What was to be reached.
    """
    middle = f"({cost.low:.2f} - {cost.high:.2f})"
    ratio = f"{ours.median / cost.median:.2f} x" if ours else ""
    of_limit = f"{cost.median / limit.median:.2f} x"
    print(f"{what:44} {cost.median:9.2f} {middle:>18}  {of_limit:>9}  {ratio:>11}  {goal}".rstrip(), flush=True)


def pieces(variant: str) -> str:
    """Return a row's name for a bare variant."""
    return NAMES.get(variant) or f"MPI_Allreduce in pieces of {int(variant.removeprefix('bare:')) / 1024:g} MB"


def steps(model: str, effort: Effort, settings: list[dict[str, str]]) -> None:
    """Two ranks on this machine: MPI alone, hpcrun, MultiWorkerMirroredStrategy, Horovod, and hpcrun with settings."""
    rounds: list[object] = ["--rounds", effort.steps(model)]
    result = here()(2, "steps.py", model, "none", LIMIT, "hpcrun", "mwms", *rounds)
    found, large = costs(result), model == "resnet50"
    limit, ours = found[LIMIT], found["hpcrun"]
    heading(f"{model}, 2 ranks on this machine with {os.cpu_count()} cores, a thread each", result)
    row(f"{pieces(LIMIT)} (limit)", limit, limit)
    row("hpcrun", ours, limit, goal="at most 2.0 x the limit" if large else "at most 0.25 ms")
    row(NAMES["mwms"], found["mwms"], limit, ours, "at most 0.1 x" if large else "")
    if (HOROVOD / "bin/python").exists():
        tuned = {}
        for megabytes, cycle in TUNINGS[: 1 if effort.quick else None]:
            tuning = {"HOROVOD_FUSION_THRESHOLD": str(megabytes * 2**20), "HOROVOD_CYCLE_TIME": str(cycle)}
            job = here(HOROVOD)(2, "steps.py", model, "none", "horovod", *rounds, **tuning)
            tuned[f"{megabytes} MB, {cycle:g} ms"] = costs(job)["horovod"]
        best = min(tuned, key=lambda name: tuned[name].median)
        what = f"Horovod, best of {len(tuned)} ({best})"
        row(what, tuned[best], limit, ours, "at most 0.45 x" if large else "")
    else:
        print("Horovod                                      SKIP: bash tools/horovod.sh builds it")
    with_settings(settings, here(), [model, "none", LIMIT, "hpcrun", *rounds], LIMIT)


def with_settings(settings: list[dict[str, str]], launch: Launcher, argv: list[object], limit: str) -> None:
    """Print a line for hpcrun with each of some settings, in a job of its own.

    Args:
        settings: Environment variables.
        launch: Starts the ranks.
        argv: Of `steps.py`.
        limit: The variant in it that is MPI's limit.
    """
    for setting in settings:
        found = costs(launch(2, "steps.py", *argv, **setting))
        name = " ".join(f"{name.removeprefix('HPCRUN_')}={value}" for name, value in setting.items())
        row(f"hpcrun, {name}", found["hpcrun"], found[limit])


def one_rank(model: str, effort: Effort, _: list[dict[str, str]]) -> None:
    """One rank: Keras's own fit and hpcrun.train.Model's, in turn in one process."""
    result = here()(1, "epochs.py", model, "keras", "hpcrun", *effort.epochs(model))
    theirs, ours = (statistics.median(result["times"][kind]) * 1000 for kind in ("keras", "hpcrun"))
    print(f"\n{model}, 1 rank: hpcrun.train.Model beside Keras")
    print(f"{'':44} {'hpcrun':>9}  {'Keras':>9}  {'':>10}  goal")
    print(f"{'an epoch of fit':44} {ours:6.0f} ms  {theirs:6.0f} ms  {ours / theirs:8.3f} x  at most 1.02 x")
    for key, what in {"return": "from the last step to fit's return", "cpu": "CPU time in the 2 s after it"}.items():
        theirs, ours = (result["endings"][kind][key] * 1000 for kind in ("keras", "hpcrun"))
        print(f"{what:44} {ours:6.0f} ms  {theirs:6.0f} ms", flush=True)


def scaling(model: str, effort: Effort, _: list[dict[str, str]]) -> None:
    """One, two and four ranks in `fit`, a thread each, with the same batch a rank."""
    cores, first = os.cpu_count() or 1, 0.0
    print(f"\n{model}, hpcrun.train.Model.fit on this machine with {cores} cores, a thread a rank")
    print(f"{'ranks':>5}  {'images/s':>9}  {'efficiency':>10}  {'fit returns after':>17}  CPU time in the 2 s after it")
    for ranks in (1, 2, 4):
        result = here()(ranks, "epochs.py", model, "hpcrun", *effort.epochs(model))
        speed = result["images"] / statistics.median(result["times"]["hpcrun"])
        first = first or speed
        efficiency, end = speed / first / min(ranks, cores), result["endings"]["hpcrun"]
        crowded = f"  ({ranks} ranks on {cores} cores)" if ranks > cores else ""
        print(
            f"{ranks:5}  {speed:9.0f}  {efficiency:10.2f}  {end['return'] * 1000:14.0f} ms"
            f"  {end['cpu'] * 1000:.0f} ms{crowded}",
            flush=True,
        )


def hosts(model: str, effort: Effort, settings: list[dict[str, str]]) -> None:
    """A rank on each of two hosts: which pieces suit TCP, at several speeds of the links."""
    if reason := unavailable_reason():
        print(f"\n{model}, 2 hosts{'':28}SKIP: {reason}")
        return
    sizes = PIECES if model == "resnet50" else ("bare:0",)
    with Cluster(Config("bench", accounting=False)) as cluster:
        launch = across(cluster.environ)
        # A throttled link lets 256 kB through at once (tests/cluster/network.py): all that LeNet-5 sends.
        for rate in RATES[: 1 if model == "lenet5" else 2 if effort.quick else None]:
            for node in cluster.nodelist:
                cluster.link(node, rate)
            # ResNet-50's gradients take a second at 1 Gbit/s, and vary little there.
            rounds: list[object] = ["--rounds", max(3, effort.steps(model) // (5 if rate == "1gbit" else 1))]
            result = launch(2, "steps.py", model, "none", *sizes, "hpcrun", "mwms", *rounds)
            found = costs(result)
            best = min(sizes, key=lambda size: found[size].median)
            limit = found[best]
            heading(f"{model}, 2 hosts of a rank, links of {rate.replace('norate', 'no limit')}", result)
            for size in sizes:
                row(pieces(size), found[size], limit)
            row("hpcrun", found["hpcrun"], limit)
            row(NAMES["mwms"], found["mwms"], limit, found["hpcrun"])
            with_settings(settings, launch, [model, "none", best, "hpcrun", *rounds], best)


SECTIONS: dict[str, Callable[[str, Effort, list[dict[str, str]]], None]] = {
    "steps": steps,
    "one-rank": one_rank,
    "scaling": scaling,
    "hosts": hosts,
}


def setting(text: str) -> dict[str, str]:
    """Parse NAME=VALUE[,NAME=VALUE...]."""
    return dict(pair.split("=", 1) for pair in text.split(","))


def main() -> None:
    """Measure what the command line asks for, by default all."""
    parser = argparse.ArgumentParser(description="What hpcrun.train's communication costs, beside its peers.")
    parser.add_argument("--model", action="append", choices=["resnet50", "lenet5"], help="may be repeated (both)")
    parser.add_argument("--only", action="append", choices=SECTIONS, help="a section; may be repeated (all)")
    parser.add_argument("--rounds", type=int, help="how often each step of ResNet-50 is measured (30)")
    parser.add_argument("--quick", action="store_true", help="few rounds, one setting of Horovod, no link of 1 Gbit/s")
    parser.add_argument(
        "--setting",
        type=setting,
        action="append",
        default=[],
        metavar="NAME=VALUE[,...]",
        help="also measure hpcrun with these environment variables; may be repeated",
    )
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends with this program
    effort = Effort(args.rounds or (4 if args.quick else 30), args.quick)
    if (load := os.getloadavg()[0]) > 0.5:
        print(f"WARNING: something else runs here (load {load:.1f}): these figures will say little", file=sys.stderr)
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
