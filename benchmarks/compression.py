"""Benchmark of the gradient codecs between two hosts, and of the cost model that predicts them.

    python benchmarks/compression.py
    python benchmarks/compression.py --parts sums --models resnet50 --rates norate 100mbit

The parts, all of which run by default in about fifteen minutes:

    bits     how many bits each rank sends for a number, for 2 to 1024 ranks; measured on 2, 4 and 8 hosts
    predict  the predicted gain of AlexNet's training step on 8 to 1024 ranks, with links of 1 to 100 Gbit/s
    sums     the time of an allreduce of each model in each codec, and bytes on the network, beside the prediction
    steps    whole training steps of AlexNet at 1 Gbit/s; and Horovod with fp16, if tools/horovod.sh has built it
    auto     a training of AlexNet with --compress auto beside float32, on links without limit, where codecs gain least

The hosts are namespaces of this machine, and share its cores (tests/cluster, which needs root); the program counts the
bytes that the interface of the first host sends. All codecs run in turn in one job; the ratios are relative to float32
in that job. The prediction takes the bandwidth of the link from the time of float32, as --compress auto does.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.training.launch import JobError, Launcher, launch_on_hosts, launch_on_this_host  # noqa: E402
from hpcrun.train.gradients.allreduce import CHUNK_BYTES  # noqa: E402
from hpcrun.train.gradients.cost_model import CodecCost, Link, fit_link  # noqa: E402
from hpcrun.train.gradients.ternary import bits_per_number  # noqa: E402
from tests.cluster import Cluster, Config, unavailable_reason  # noqa: E402

PARTS = ("bits", "predict", "sums", "steps", "auto")
MODELS, RATES = ("resnet50", "alexnet", "vgg16"), ("10gbit", "1gbit")
STEP_MODEL, STEP_RATE, STEP_IMAGES = "alexnet", "1gbit", 4
STEP_CODECS = ("none", "bf16", "powersgd", "ternary")
MEASURED_HOSTS = (2, 4, 8)
PREDICTED_RANKS, PREDICTED_GIGABITS = (8, 32, 128, 512, 1024), (1, 10, 25, 100)
MESSAGE_SECONDS = 3e-5  # latency of one message between two hosts
COMPUTE_SECONDS = 0.1  # assumed time of AlexNet's step on one GPU, without communication
AUTO_STEPS, AUTO_ROUNDS = 300, 1
HOROVOD = ROOT / ".venv-horovod" / "bin" / "python"
GOAL_GAIN, GOAL_ERROR, GOAL_LOSS = 3.0, 0.2, 0.02


def print_bits(measured: dict[int, dict[str, float]]) -> None:
    """Print how many bits each rank sends for a number, as float32 and as ternary numbers.

    Args:
        measured: The bits that the network interface of the first rank's host sent, by number of ranks and codec.
    """
    print(f"{'ranks':>6}{'float32':>10}{'measured':>10}{'ternary':>10}{'measured':>10}{'fewer':>8}")
    for ranks in (2**power for power in range(1, 11)):
        predicted = {"none": 2 * 32 * (ranks - 1) / ranks, "ternary": min(bits_per_number(ranks))}
        cells = [
            f"{bits:10.2f}{measured[ranks][codec]:10.2f}" if ranks in measured else f"{bits:10.2f}{'':10}"
            for codec, bits in predicted.items()
        ]
        print(f"{ranks:6}{''.join(cells)}{predicted['none'] / predicted['ternary']:7.1f} x")


def measure_bits() -> dict[int, dict[str, float]]:
    """Return the bits that a host sends for a number in each codec, by number of hosts."""
    if reason := unavailable_reason():
        print(f"measured: SKIP: {reason}")
        return {}
    measured = {}
    with Cluster(Config("bits", nodes=max(MEASURED_HOSTS), accounting=False)) as cluster:
        for hosts in MEASURED_HOSTS:
            found = launch_on_hosts(cluster.environ)(hosts, "codec_rounds.py", "matrix", 1)
            measured[hosts] = {codec: 8 * sent / found["numbers"] for codec, (_, sent) in found["codecs"].items()}
    return measured


def print_predictions() -> None:
    """Print the predicted gain of a training step of AlexNet, whose codecs run on a core of this host."""
    found = launch_on_this_host()(1, "codec_costs.py", STEP_MODEL, *PREDICTED_RANKS)
    print(f"\n{STEP_MODEL}, {COMPUTE_SECONDS * 1e3:.0f} ms of computation per step: predicted gain in each codec")
    codecs = [codec for codec in STEP_CODECS if codec != "none"]
    print(f"{'ranks':>6}{'Gbit/s':>8}{'float32':>12}{''.join(f'{codec:>12}' for codec in codecs)}")
    for ranks in PREDICTED_RANKS:
        for gigabits in PREDICTED_GIGABITS:
            link = Link(2 * math.log2(ranks) * MESSAGE_SECONDS, gigabits * 1e9 / 8)
            steps = {
                codec: COMPUTE_SECONDS + CodecCost(*found[str(ranks)][codec]).predict(link) for codec in STEP_CODECS
            }
            gains = "".join(f"{steps['none'] / steps[codec]:10.1f} x" for codec in codecs)
            print(f"{ranks:6}{gigabits:8}{steps['none'] * 1e3:9.0f} ms{gains}")


def print_sums(found: dict[str, Any], model: str, link_name: str) -> None:
    """Print the time of a sum in each codec, beside the prediction."""
    megabytes = found["numbers"] * 4 / 1e6
    print(f"\n{model}, {megabytes:.0f} MB of gradients, 2 hosts, links of {link_name}")
    heads = ("MB sent", "of float32", "ms", "of float32", "predicted", "error")
    print(f"{'codec':12}{''.join(f'{head:>12}' for head in heads)}")
    seconds, sent = found["codecs"]["none"]
    costs = {codec: CodecCost(*cost) for codec, cost in found["costs"].items()}
    plain = costs["none"]._replace(collectives=math.ceil(found["numbers"] * 4 / CHUNK_BYTES))
    link = fit_link(seconds, plain, found["latency"])
    for codec, (codec_seconds, codec_sent) in found["codecs"].items():
        predicted = seconds if codec == "none" else costs[codec].predict(link)
        error = predicted / codec_seconds - 1
        cells = (
            f"{codec_sent / 1e6:.2f}", f"1/{sent / codec_sent:.1f}", f"{codec_seconds * 1e3:.0f}",
            f"1/{seconds / codec_seconds:.1f}", f"{predicted * 1e3:.0f}", "" if codec == "none" else f"{error:+.0%}",
        )  # fmt: skip
        print(f"{codec:12}{''.join(f'{cell:>12}' for cell in cells)}{'  (goal: 20 %)' * (abs(error) > GOAL_ERROR)}")


def print_steps(launch: Launcher, steps: int) -> None:
    """Print the time of a training step in each codec."""
    print(f"\n{STEP_MODEL}, {STEP_IMAGES} images per rank, 2 hosts, links of {STEP_RATE}: whole training steps")
    plain = None
    for codec in STEP_CODECS:
        found = launch(2, "codec_steps.py", STEP_MODEL, STEP_IMAGES, steps, HPCRUN_COMPRESS=codec)["median"]
        plain = plain or found
        goal = f"  (goal: {GOAL_GAIN:.0f} x)" if codec == STEP_CODECS[-1] else ""
        print(f"{codec:12}{found * 1e3:10.0f} ms{plain / found:8.1f} x{goal}")


def print_auto(launch: Launcher) -> None:
    """Print the time of a training in which ``auto`` chooses, relative to float32; the trainings take turns."""
    seconds: dict[str, list[float]] = {"none": [], "auto": []}
    for _ in range(AUTO_ROUNDS):
        for codec, found in seconds.items():
            arguments = STEP_MODEL, STEP_IMAGES, AUTO_STEPS
            found.append(launch(2, "codec_steps.py", *arguments, HPCRUN_COMPRESS=codec)["all"])
    plain, automatic = (min(found) for found in seconds.values())
    print(f"\n{STEP_MODEL}, {STEP_IMAGES} images per rank, 2 hosts, links of no limit: {AUTO_STEPS} training steps")
    print(f"none{plain:8.1f} s\nauto{automatic:8.1f} s{automatic / plain - 1:+8.1%}  (goal: {GOAL_LOSS:.0%})")


def print_horovod(environment: dict[str, str], rounds: int) -> None:
    """Print the time that a step takes longer with Horovod's sum of gradients, with and without its fp16."""
    if not HOROVOD.exists():
        print("\nHorovod: SKIP: bash tools/horovod.sh builds it")
        return
    prefix = launch_on_hosts(environment)
    launch = Launcher(prefix.command_prefix, str(HOROVOD), prefix.environment)
    variants = ("none", "horovod", "horovod:fp16")
    try:
        times = launch(2, "steps.py", "resnet50", *variants, "--rounds", rounds)["times"]
    except JobError as error:
        print(f"\nHorovod: FAILED: {error}")
        return
    print(f"\nHorovod, resnet50, 2 hosts, links of {STEP_RATE}: time of communication in a step")
    medians = {variant: sorted(times[variant])[len(times[variant]) // 2] for variant in variants}
    for variant in variants[1:]:
        print(f"{variant:14}{(medians[variant] - medians['none']) * 1e3:8.0f} ms")


def measure(args: argparse.Namespace) -> None:
    """Measure sums, steps and trainings between two hosts."""
    if reason := unavailable_reason():
        sys.exit(f"SKIP: {reason}")
    with Cluster(Config("bench", accounting=False)) as cluster:
        launch = launch_on_hosts(cluster.environ)

        def set_rate(rate: str) -> None:
            for node in cluster.nodelist:
                cluster.link(node, rate)

        for rate in args.rates if "sums" in args.parts else ():
            set_rate(rate)
            for model in args.models:
                found = launch(2, "codec_rounds.py", model, args.rounds)
                print_sums(found, model, rate.replace("norate", "no limit"))
        if "steps" in args.parts:
            set_rate(STEP_RATE)
            print_steps(launch, args.rounds)
            print_horovod(cluster.environ, args.rounds)
        if "auto" in args.parts:
            set_rate("norate")
            print_auto(launch)


def main() -> None:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--models", nargs="+", default=MODELS, help="networks of the workload resnet50")
    parser.add_argument("--rates", nargs="+", default=RATES, metavar="RATE", help="rates of the link, as of tc(8)")
    parser.add_argument("--rounds", type=int, default=3, help="sums in each codec, and steps")
    args = parser.parse_args()
    if "bits" in args.parts:
        print_bits(measure_bits())
    if "predict" in args.parts:
        print_predictions()
    if {"sums", "steps", "auto"} & set(args.parts):
        measure(args)


if __name__ == "__main__":
    main()
