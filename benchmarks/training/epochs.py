"""Benchmark of epochs of `fit` with Keras and hpcrun.train, in turn in one process; several ranks run only hpcrun.

    python benchmarks/training/epochs.py lenet5 keras hpcrun
    mpiexec -n 2 python benchmarks/training/epochs.py lenet5 hpcrun

Rank 0 prints one line of JSON: the seconds of each epoch, and the time between the last step and the end of `fit`.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING

import hpcrun.train

hpcrun.train.init()

import keras  # noqa: E402
from networks import NETWORKS, Network  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

WATCH_SECONDS = 2.0  # CPU time is measured for these seconds after `fit`


class EpochEnds(keras.callbacks.Callback):
    """Callback that records the ends of epochs, but not the beginning of the first epoch, which traces the step."""

    async_safe = True  # otherwise, Keras would wait for the logs of every step

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:  # noqa: ARG002
        """Record the time."""
        self.ends.append(time.perf_counter())


class LastStepEnd(keras.callbacks.Callback):
    """Callback that records the time at which the last step ends."""

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:  # noqa: ARG002
        """Record the time; the logs are numbers, so the step has been computed."""
        self.end = time.perf_counter()


def make_fit(kind: str, network: Network, images: int) -> Callable[..., None]:
    """Return the `fit` of a new model, which is equal for both kinds.

    Args:
        kind: "keras" or "hpcrun".
        network: The network of the model.
        images: Images per epoch, over all ranks.
    """
    keras.utils.set_random_seed(1)
    model = network.build()
    if kind == "hpcrun":
        model = hpcrun.train.Model(model)
    model.compile(optimizer=keras.optimizers.SGD(0.001, momentum=0.9), loss="sparse_categorical_crossentropy")
    x, y = network.data(images, seed=0)
    batch_size = network.batch * hpcrun.train.size()

    def fit(epochs: int, callback: keras.callbacks.Callback) -> None:
        model.fit(x, y, batch_size=batch_size, epochs=epochs, callbacks=[callback], verbose=0)

    return fit


def epoch_seconds(fit: Callable[..., None], number: int) -> list[float]:
    """Return the duration of each epoch in seconds, from the end of the previous epoch to the end of the epoch."""
    clock = EpochEnds()
    fit(number + 1, clock)
    return [end - begin for begin, end in zip(clock.ends, clock.ends[1:], strict=False)]


def measure_ending(fit: Callable[..., None]) -> dict[str, float]:
    """Measure the time after the last step of a `fit`.

    Args:
        fit: A result of `make_fit`.

    Returns:
        Seconds from the last step to the return, and seconds of CPU time that this process used afterwards.
    """
    last = LastStepEnd()
    fit(1, last)
    returned, used = time.perf_counter(), time.process_time()
    time.sleep(WATCH_SECONDS)
    return {"return": returned - last.end, "cpu": time.process_time() - used}


def main() -> None:
    """Run the benchmark that the command line selects."""
    parser = argparse.ArgumentParser(description="Benchmark epochs of Keras's fit and hpcrun.train's.")
    parser.add_argument("network")
    parser.add_argument("kinds", nargs="+", choices=["keras", "hpcrun"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="steps per rank and epoch")
    args = parser.parse_args()
    network, kinds = NETWORKS[args.network], args.kinds
    images = args.steps * network.batch * hpcrun.train.size()
    fits = {kind: make_fit(kind, network, images) for kind in kinds}
    for fit in fits.values():
        epoch_seconds(fit, 0)
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for i in range(args.rounds):
        for kind in kinds[:: 1 if i % 2 else -1]:
            times[kind] += epoch_seconds(fits[kind], 2)
    endings = {kind: measure_ending(fits[kind]) for kind in kinds}
    if hpcrun.train.rank() == 0:
        print(json.dumps({"images": images, "times": times, "endings": endings}), flush=True)


if __name__ == "__main__":
    main()
