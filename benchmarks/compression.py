"""Benchmark of the gradient codecs between two hosts: time of an allreduce, and bytes on the network.

    python benchmarks/compression.py --model resnet50 --rates norate 10gbit 1gbit 100mbit
    python benchmarks/compression.py --bytes

The hosts are namespaces of this machine, and share its cores (tests/cluster, which needs root); the program counts the
bytes that the interface of the first host sends. All codecs run in turn in one job; the ratios are relative to float32
in that job.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.training.launch import launch_on_hosts  # noqa: E402
from hpcrun.train.gradients.ternary import bits_per_number  # noqa: E402
from tests.cluster import Cluster, Config, unavailable_reason  # noqa: E402

RATES = ("norate", "10gbit", "1gbit", "100mbit")


def print_bits() -> None:
    """Print how many bits each rank sends for a number, as float32 and as ternary numbers."""
    print(f"{'ranks':>6}{'float32':>10}{'ternary':>10}{'fewer':>8}")
    for ranks in (2**power for power in range(1, 11)):
        plain, ternary = 2 * 32 * (ranks - 1) / ranks, min(bits_per_number(ranks))
        print(f"{ranks:6}{plain:10.1f}{ternary:10.2f}{plain / ternary:7.1f} x")


def main() -> None:
    """Measure all codecs at each rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50", help="a network of the workload resnet50")
    parser.add_argument("--rates", nargs="+", default=RATES, metavar="RATE", help="rates of the link, as of tc(8)")
    parser.add_argument("--bytes", action="store_true", help="print only the bits per number, for 2 to 1024 ranks")
    parser.add_argument("--rounds", type=int, default=5, help="sums in each codec")
    args = parser.parse_args()
    if args.bytes:
        print_bits()
        return
    if reason := unavailable_reason():
        sys.exit(f"SKIP: {reason}")
    with Cluster(Config("bench", accounting=False)) as cluster:
        launch = launch_on_hosts(cluster.environ)
        for rate in args.rates:
            for node in cluster.nodelist:
                cluster.link(node, rate)
            found = launch(2, "codec_rounds.py", args.model, args.rounds)
            megabytes = found["numbers"] * 4 / 1e6
            link = rate.replace("norate", "no limit")
            print(f"\n{args.model}, {megabytes:.0f} MB of gradients, 2 hosts, links of {link}")
            print(f"{'codec':12}{'MB sent':>10}{'of float32':>12}{'ms':>10}{'of float32':>12}")
            seconds, sent = found["codecs"]["none"]
            for codec, (codec_seconds, codec_sent) in found["codecs"].items():
                ratios = f"1/{sent / codec_sent:.1f}", f"1/{seconds / codec_seconds:.1f}"
                print(f"{codec:12}{codec_sent / 1e6:10.2f}{ratios[0]:>12}{codec_seconds * 1e3:10.0f}{ratios[1]:>12}")


if __name__ == "__main__":
    main()
