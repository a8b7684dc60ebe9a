"""Benchmark of training with hpcrun and with plain Keras, alternately in one process.

    python benchmarks/train.py --image-size 224 --batch-size 8

A rank has one core. Calls of `fit` with a few steps alternate; the ratios are ratios of median step times:

    keras      plain Keras, images in memory
    hpcrun     hpcrun.train.Model with the callbacks of a run (saved models are not part of a step)
    records    the same from JPEG files in TFRecords, with the augmentation of ResNet

The CPU time excludes the effect of other programs on the host. Then two ranks take steps of twice the batch size.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "workloads" / "resnet50")]
CLASSES = 10


def measure(args: argparse.Namespace) -> None:
    """Measure on the ranks of this job, and print one line of JSON."""
    import hpcrun.train

    hpcrun.train.init()
    import keras
    import networks  # type: ignore[import-not-found]  # the module of the workload resnet50

    batch = args.batch_size * hpcrun.train.size()
    kinds = ["keras", "hpcrun", "records"] if hpcrun.train.size() == 1 else ["hpcrun"]
    fits, steps = {}, {}
    for kind in kinds:
        network = networks.build(args.arch, args.image_size, CLASSES)
        model = network if kind == "keras" else hpcrun.train.Model(network)
        model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy")
        fits[kind], steps[kind] = (model, make_batches(kind, args, batch)), make_stopwatch()
    for number in range(args.rounds + 1):
        for kind, (model, batches) in fits.items():
            if number == 1:  # do not count the first fit, which compiles
                steps[kind].wall.clear()
                steps[kind].cpu.clear()
            run = hpcrun.train.run_callbacks() if kind != "keras" else []
            model.fit(batches, epochs=1, verbose=0, callbacks=[*run, steps[kind]])
    if hpcrun.train.is_chief():
        found = {kind: [statistics.median(each.wall), statistics.median(each.cpu)] for kind, each in steps.items()}
        found["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print("RESULT", json.dumps(found), flush=True)


def make_batches(kind: str, args: argparse.Namespace, batch: int) -> Any:
    """Return the training data of a variant."""
    import numpy as np
    import tensorflow as tf

    import hpcrun.train
    from hpcrun.train import images

    size, draw = args.image_size, np.random.default_rng(0)
    x = draw.integers(256, size=(batch * args.steps, size, size, 3), dtype=np.uint8)  # (n, 224, 224, 3)
    y = draw.integers(CLASSES, size=len(x))  # (n,)
    if kind == "keras":
        return tf.data.Dataset.from_tensor_slices((x, y)).batch(batch).prefetch(2)
    if kind == "hpcrun":
        return hpcrun.train.dataset(x, y, batch_size=batch)
    return images.read_split(args.records, "train", limit=len(x)).batches(batch, size, augment="resnet", shuffle=True)


def make_stopwatch() -> Any:
    """Return a callback that measures all steps of a fit except the first, including the time of callbacks."""
    import keras

    class Stopwatch(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
        """Run time and CPU time of each step, in seconds."""

        async_safe = True

        def __init__(self) -> None:
            super().__init__()
            self.wall: list[float] = []
            self.cpu: list[float] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
            """Add the step."""
            now = time.perf_counter(), time.process_time()
            if batch:
                self.wall.append(now[0] - self._last[0])
                self.cpu.append(now[1] - self._last[1])
            self._last = now

    return Stopwatch()


def launch(ranks: int, argv: list[str]) -> dict[str, Any]:
    """Run this program on one or two ranks with one core each, and return its results."""
    cores = sorted(os.sched_getaffinity(0))[:ranks]
    command = [str(Path(sys.executable).with_name("mpiexec")), "-n", str(ranks), sys.executable, __file__, *argv]
    environment = {name: value for name, value in os.environ.items() if name != "HPCRUN_RUN_DIR"}
    command = ["taskset", "-c", ",".join(map(str, cores)), *command]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
    return dict(json.loads(lines[0].removeprefix("RESULT ")))


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="resnet50")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=8, help="of each rank")
    parser.add_argument("--steps", type=int, default=5, help="of each fit")
    parser.add_argument("--rounds", type=int, default=4, help="fits of each kind")
    parser.add_argument("--records", help="folder of TFRecords; default: synthetic ones")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        measure(args)
        return
    with tempfile.TemporaryDirectory() as folder:
        if not args.records:
            args.records = f"{folder}/records"
            count, size = args.batch_size * args.steps, args.image_size * 8 // 7
            options = ["--images", str(count), "--validation-images", "1", "--size", str(size)]
            command = [sys.executable, "-m", "hpcrun", "data", "synthetic", args.records, *options]
            subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
        argv = ["--worker", *(f"--{key.replace('_', '-')}={value}" for key, value in vars(args).items() if value)]
        one, two = launch(1, argv), launch(2, argv)
    print(f"{args.arch}, {args.image_size} x {args.image_size} pixels, {args.batch_size} images per rank and step")
    for kind, (wall, cpu) in list(one.items())[:3]:
        print(f"{kind:10} {wall * 1000:9.1f} ms a step, {cpu * 1000:9.1f} ms of CPU time")
    limits = [("step under hpcrun", "hpcrun", "keras", 1.02), ("TFRecords", "records", "hpcrun", 1.05)]
    for what, kind, peer, most in limits:
        wall, cpu = (one[kind][k] / one[peer][k] for k in (0, 1))
        print(f"{what}: {wall:.3f} of {peer} ({cpu:.3f} of its CPU time); at most {most}")
    print(f"memory: {one['megabytes']:.0f} MB with three models, {two['megabytes']:.0f} MB a rank with one")
    print(f"two ranks: {one['hpcrun'][0] / two['hpcrun'][0]:.2f} of the speed per rank of one")


if __name__ == "__main__":
    main()
