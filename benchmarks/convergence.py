"""Convergence of the gradient codecs on real images, on 2, 8 and 32 workers.

    python benchmarks/convergence.py
    python benchmarks/convergence.py --cifar10 ~/.keras/datasets --networks cifarnet --epochs 60 --seeds 1

Two ranks on this machine stand for all workers (--virtual-workers). All trainings of a network start from the same
weights, and see the same batches. The accuracy is that of the last epoch, as the mean over the seeds, in percent; each
seed holds out another fifth of scikit-learn's 1,797 digits. A codec keeps the accuracy if it is within one point of
float32 with the same workers. The program also draws the curves.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.training.launch import launch_on_this_host  # noqa: E402

RANKS = 2
CODECS = ("none", "fp16", "bf16", "ternary", "powersgd")
MAX_LOSS = 1.0  # points of accuracy
Curves = dict[tuple[str, int], list[float]]


def measure(args: argparse.Namespace, network: str) -> Curves:
    """Return the mean test accuracy in percent after each epoch, by codec and number of workers."""
    launch, curves = launch_on_this_host(), {}
    argv = [network, "--seeds", args.seeds, "--epochs", args.epochs, "--batch-size", args.batch_size]
    argv += ["--precision", args.precision]
    argv += ["--cifar10", args.cifar10, "--images", args.images] if args.cifar10 else []
    for workers in args.workers:
        for codec in args.codecs:
            settings = {"HPCRUN_COMPRESS": codec, "HPCRUN_VIRTUAL_WORKERS": str(workers // RANKS)}
            settings["HPCRUN_FLOAT_FIRST"] = str(args.float_first)
            found = launch(RANKS, "converge.py", *argv, **settings)["accuracies"]
            curves[codec, workers] = [100 * sum(epoch) / len(epoch) for epoch in zip(*found, strict=True)]
            print(f"{network} {workers:3} workers {codec:9}{curves[codec, workers][-1]:6.1f} %", flush=True)
    return curves


def print_table(args: argparse.Namespace, network: str, curves: Curves) -> None:
    """Print the accuracy of the last epoch, and the difference from float32, as a Markdown table."""
    workers = args.workers
    print(f"\n| {network} | {' | '.join(f'{count} workers' for count in workers)} |")
    print(f"| --- |{' ---: |' * len(workers)}")
    for codec in args.codecs:
        cells = []
        for count in workers:
            accuracy = curves[codec, count][-1]
            lost = curves[args.codecs[0], count][-1] - accuracy
            marks = "" if codec == args.codecs[0] else f" ({-lost:+.1f}{', too low' if lost > MAX_LOSS else ''})"
            cells.append(f"{accuracy:.1f}{marks}")
        print(f"| `{codec}` | {' | '.join(cells)} |")


def draw(path: Path, network: str, curves: Curves, workers: int) -> None:
    """Draw the curves of all codecs with a number of workers.

    Args:
        path: The SVG file.
        network: The name of the network.
        curves: The accuracies.
        workers: The number of workers.
    """
    import pygal
    from pygal.style import LightColorizedStyle

    top = 10 * math.ceil(max(map(max, curves.values())) / 10)
    chart = pygal.XY(
        width=640, height=400, dots_size=1, js=(), style=LightColorizedStyle, range=(top - 20, top),
        title=f"{network}, {workers} workers", x_title="epoch", y_title="test accuracy in percent",
        show_x_guides=False, legend_at_bottom=True,
    )  # fmt: skip
    for (codec, count), accuracies in curves.items():
        if count == workers:
            points = enumerate((round(accuracy, 2) for accuracy in accuracies), 1)
            chart.add(codec, [(epoch, accuracy) for epoch, accuracy in points if accuracy >= top - 20])
    path.write_bytes(chart.render())


def main() -> None:
    """Train with all codecs, print tables, and draw the curves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=["lenet5", "resnet8"])
    parser.add_argument("--workers", nargs="+", type=int, default=[2, 8, 32], help="even numbers")
    parser.add_argument("--codecs", nargs="+", default=CODECS, choices=CODECS, help="the first is the baseline")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--float-first", type=int, default=0, metavar="N", help="as hpcrun submit's --float-first")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64, help="of all workers, a multiple of their number")
    parser.add_argument("--cifar10", default="", metavar="FOLDER", help="train on CIFAR-10, which has this folder")
    parser.add_argument("--precision", default="float32", choices=["float32", "mixed_bfloat16", "mixed_float16"])
    parser.add_argument("--images", type=int, default=50_000, help="the number of CIFAR-10's training images")
    parser.add_argument("--folder", type=Path, default=Path(), help="folder of the curves, NETWORK-convergence.svg")
    args = parser.parse_args()
    begin = time.perf_counter()
    for network in args.networks:
        curves = measure(args, network)
        print_table(args, network, curves)
        draw(args.folder / f"{network}-convergence.svg", network, curves, args.workers[-1])
    data = f"{args.images:,} images of CIFAR-10" if args.cifar10 else "digits"
    print(f"\n{data}, {args.epochs} epochs, seeds: {args.seeds}, {args.batch_size} images a step")
    print(f"{(time.perf_counter() - begin) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
