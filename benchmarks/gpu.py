"""Benchmark of training on a GPU with hpcrun and with plain Keras, alternately in one process.

    python benchmarks/gpu.py --backend jax --precision mixed_bfloat16

Each `fit` uses random images in memory; the program prints the ratio of the median speeds. With two ranks on one GPU,
it measures the cost of the allreduce of gradients through host memory, or from GPU memory with a CUDA-aware MPI library
(--cuda-aware, PyTorch only).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "workloads" / "resnet50")]
CLASSES = 1000
GOAL = 0.97


def measure(args: argparse.Namespace) -> None:
    """Measure on the ranks of this job, and print one line of JSON."""
    import hpcrun.train

    hpcrun.train.init()
    import keras
    import networks  # type: ignore[import-not-found]  # the module of the workload resnet50
    import numpy as np

    keras.mixed_precision.set_global_policy(args.precision)
    size, draw = args.image_size, np.random.default_rng(0)
    batch = args.batch_size * hpcrun.train.size()
    x = draw.integers(256, size=(batch * args.steps, size, size, 3), dtype=np.uint8)  # (n, 224, 224, 3)
    y = draw.integers(CLASSES, size=len(x))  # (n,)
    speeds: dict[str, list[float]] = {"keras": [], "hpcrun": []} if hpcrun.train.size() == 1 else {"hpcrun": []}
    models = {}
    for kind in speeds:
        network = networks.build(args.arch, size, CLASSES)
        models[kind] = network if kind == "keras" else hpcrun.train.Model(network)
        models[kind].compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy")
    for number in range(args.rounds + 1):
        for kind, model in models.items():
            run = hpcrun.train.run_callbacks() if kind != "keras" else []
            start = time.perf_counter()
            model.fit(x, y, batch_size=batch, shuffle=False, verbose=0, callbacks=run)
            if number:  # do not count the first fit, which compiles
                speeds[kind].append(len(x) / (time.perf_counter() - start))
    if hpcrun.train.is_chief():
        print("RESULT", json.dumps(speeds), flush=True)


def launch(args: argparse.Namespace) -> dict[str, list[float]]:
    """Run this program on the ranks, and return the measured speeds in images/s."""
    command = [args.mpiexec, "-n", str(args.ranks), sys.executable, __file__, "--worker", *sys.argv[1:]]
    environ = {name: value for name, value in os.environ.items() if name != "HPCRUN_RUN_DIR"}
    environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # because ranks share the GPU's memory
    environ["HPCRUN_CUDA_AWARE"] = str(int(args.cuda_aware))
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        sys.exit(done.stdout[-3000:] + done.stderr[-3000:])
    return dict(json.loads(lines[0].removeprefix("RESULT ")))


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default=os.environ.get("KERAS_BACKEND", "tensorflow"), help="of Keras")
    parser.add_argument("--precision", default="float32", help="Keras's policy, such as mixed_bfloat16")
    parser.add_argument("--arch", default="resnet50")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=128, help="of each rank")
    parser.add_argument("--steps", type=int, default=20, help="of each fit")
    parser.add_argument("--rounds", type=int, default=5, help="fits of each kind")
    parser.add_argument("--ranks", type=int, default=1, help="2 shares the GPU")
    parser.add_argument("--cuda-aware", action="store_true", help="MPI reads the GPU's memory (PyTorch)")
    parser.add_argument("--mpiexec", default=str(Path(sys.executable).with_name("mpiexec")))
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure, and print the speeds."""
    args = parse()
    os.environ["KERAS_BACKEND"] = args.backend
    if args.worker:
        measure(args)
        return
    speeds_by_kind = launch(args)
    print(f"{args.arch}, {args.backend}, {args.precision}, {args.batch_size} images per rank, {args.ranks} rank(s)")
    medians = {kind: statistics.median(speeds) for kind, speeds in speeds_by_kind.items()}
    for kind, speeds in speeds_by_kind.items():
        print(f"{kind:8} {medians[kind]:8.0f} images/s (of {len(speeds)} fits: {min(speeds):.0f} to {max(speeds):.0f})")
    if "keras" in medians:
        print(f"hpcrun: {medians['hpcrun'] / medians['keras']:.3f} of Keras's speed (goal: {GOAL})")


if __name__ == "__main__":
    main()
