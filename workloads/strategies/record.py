"""What a run leaves, as hpcrun's commands read it: log lines, metrics.jsonl, heartbeats, checkpoints, result.json."""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NoReturn

import keras
import numpy as np

from hpcrun.train.ranks import heartbeat

if TYPE_CHECKING:
    import argparse


class Record:
    """The record of one rank; only that of rank 0 writes more than heartbeats.

    Args:
        args: The options.
        rank: This rank.
        hosts: The host of each rank.
    """

    def __init__(self, args: argparse.Namespace, rank: int, hosts: list[str]) -> None:
        self.args, self.rank, self.hosts = args, rank, hosts
        self.folder = Path(os.environ["HPCRUN_RUN_DIR"]) if "HPCRUN_RUN_DIR" in os.environ else None
        self.signal = 0
        self._progress: dict[str, Any] = {"phase": "starting", "epochs": args.epochs}
        self._rates: list[float] = []
        self._start, self._last = time.perf_counter(), (0.0, -1, 0)  # when, epoch and step
        self._speed: dict[str, float] = {}
        heartbeat.set_details(lambda: self._progress)
        heartbeat.start_heartbeat(rank, hosts, heartbeat.read_heartbeat_seconds())

    def handle_signals(self) -> None:
        """Note the signals of `hpcrun cancel`, preemption and the time limit; strategies set other handlers before."""
        for number in (signal.SIGTERM, signal.SIGUSR2):
            signal.signal(number, self._stop)

    def _stop(self, number: int, _: object) -> None:
        self.signal = number

    def step(self, epoch: int, step: int, steps: int, **logs: float) -> None:
        """Record for the heartbeat how many steps of an epoch are done."""
        now, (began, last_epoch, done) = time.perf_counter(), self._last
        where = {"phase": "training", "epoch": epoch + 1, "epochs": self.args.epochs, "step": step, "steps": steps}
        if epoch == last_epoch and step > done:  # the time between epochs is not a step
            seconds = (now - began) / (step - done)
            rate = self.args.batch_size / seconds
            self._speed = {"step_seconds": round(seconds, 6), "images_per_second": float(f"{rate:.5g}")}
        self._progress = {**where, **self._speed, "fit_seconds": round(now - self._start, 3), "logs": logs}
        self._last = (now, epoch, step)

    def stop(self, epoch: int, step: int) -> NoReturn:
        """End this rank after a signal and a checkpoint."""
        if self.rank == 0:
            name = signal.Signals(self.signal).name if self.signal else "the signal of another rank"
            print(f"stopped by {name} in epoch {epoch + 1}, after {step} steps; started again, it continues there")
        sys.stdout.flush()
        os._exit(128 + (self.signal or signal.SIGTERM))  # TensorFlow's threads may wait for the other ranks

    def epoch(self, epoch: int, seconds: float, rate: float, **logs: float) -> None:
        """Print an epoch and append it to ``metrics.jsonl``, on rank 0."""
        if self.rank > 0:
            return
        self._rates.append(rate)
        words = [f"{name} {value:.4f}" for name, value in logs.items()]
        print(f"epoch {epoch + 1}/{self.args.epochs}", *words, f"{rate:,.0f} images/s", sep="  ", flush=True)
        entry = {"epoch": epoch + 1, "epochs": self.args.epochs, **logs}
        entry |= {"images_per_second": rate, "seconds": round(seconds, 3)}
        if self.folder:
            with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")

    def result(self, **metrics: float | str) -> None:
        """Print the result and write ``result.json``, on rank 0."""
        if self.rank > 0:
            return
        if self._rates:
            metrics["images_per_second"] = median(self._rates)
        self._progress = {**self._progress, "phase": "trained"}
        words = [
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in metrics.items()
        ]
        print("result", *words, sep="  ", flush=True)
        versions = {"python": platform.python_version()}
        versions |= {name: sys.modules[name].__version__ for name in ("tensorflow", "keras") if name in sys.modules}
        about = {"ranks": len(self.hosts), "hosts": list(dict.fromkeys(self.hosts)), "versions": versions}
        if self.folder:
            replace(self.folder / "result.json", json.dumps({**metrics, **about}, indent=2).encode())


class Checkpoint:
    """The weights, the optimizer's state and the position of a training in one file, as numbers.

    Args:
        folder: The run directory; None outside of a job.
        variables: The variables of the model and the optimizer.
        writes: Whether this rank writes the file.
    """

    def __init__(self, folder: Path | None, variables: list[keras.Variable], *, writes: bool) -> None:
        self.file = folder / "checkpoints" / "strategies.npz" if folder else None
        self.variables, self.writes = variables, writes

    def write(self, epoch: int, step: int) -> None:
        """Write the file on one rank; all ranks that share the variables call this, because reading may need all."""
        values = {f"v{number}": keras.ops.convert_to_numpy(each) for number, each in enumerate(self.variables)}
        if self.writes and self.file:
            self.file.parent.mkdir(mode=0o700, exist_ok=True)
            new = self.file.with_suffix(".new")
            with new.open("wb") as file:
                np.savez(file, epoch=epoch, step=step, **values)
            new.replace(self.file)

    def read(self) -> tuple[int, int]:
        """Set the variables to the values of the file, if there is one.

        Returns:
            The epoch and its step that come next.
        """
        if not self.file or not self.file.exists():
            return 0, 0
        with np.load(self.file) as values:
            for number, variable in enumerate(self.variables):
                variable.assign(values[f"v{number}"])
            return int(values["epoch"]), int(values["step"])


def replace(file: Path, content: bytes) -> None:
    """Replace a file in one step, so that a reader never sees half of it."""
    new = file.with_name(f".{file.name}.new")
    new.write_bytes(content)
    new.replace(file)
