"""What a run tells: lines for its log, one JSON object an epoch, and a result."""

from __future__ import annotations

import json
import math
import os
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from hpcrun.train.world import mpi_library, say, world

if TYPE_CHECKING:
    from hpcrun.train.kinds import Json, Logs

PAUSE = 2.0  # seconds between progress lines within an epoch

_seconds: list[float] = []  # of each `fit` so far


class Report(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Prints one line an epoch and appends it to ``$HPCRUN_RUN_DIR/metrics.jsonl`` (rank 0); measures images a second.

    Args:
        show: Whether this rank prints.
    """

    async_safe = True  # or Keras would wait for every step's logs

    def __init__(self, *, show: bool) -> None:
        super().__init__()
        self.show = show

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Start the clock."""
        self._started = time.perf_counter()

    def on_train_end(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Stop the clock."""
        _seconds.append(time.perf_counter() - self._started)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Start the epoch's clock."""
        self._epoch = epoch + 1
        self._rate: float | None = None
        self._begun = self._spoke = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Print how far a long epoch is; the figures are rank 0's own until the epoch's end."""
        if self.show and time.perf_counter() - self._spoke > PAUSE:
            self._spoke = time.perf_counter()
            steps = self.params.get("steps") or "?"
            self._print(f"step {batch + 1}/{steps}", logs or {})

    def on_test_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Measure before validation, which takes its time and resets the count."""
        self._measure()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Report the epoch."""
        logs = {} if logs is None else logs
        self._measure()
        if self.show:
            self._print("", dict(sorted(logs.items(), key=_order)))
        logs["images_per_second"] = self._rate or 0.0
        seconds = round(time.perf_counter() - self._begun, 3)
        entry = {"epoch": self._epoch, "epochs": self.params.get("epochs"), **logs, "seconds": seconds}
        if (folder := _run_dir()) and world().rank == 0:
            with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(_jsonable(entry)) + "\n")

    def _measure(self) -> None:
        if self._rate is None:
            # The loss is a mean over samples, so its count is the number of samples; all ranks' by now.
            loss = next((m for m in self.model.metrics if m.name == "loss" and hasattr(m, "count")), None)
            samples = float(loss.count) if loss else 0.0
            self._rate = samples / (time.perf_counter() - self._begun)

    def _print(self, step: str, logs: dict[str, Any]) -> None:
        rate = f"{self._rate:{',.0f' if self._rate >= 10 else '.2g'}} images/s" if self._rate else ""
        words = [f"epoch {self._epoch}/{self.params.get('epochs')}", step, *_figures(logs), rate]
        say("  ".join(word for word in words if word))


def write_result(**figures: float | str) -> None:
    """Print a run's result and write it to ``$HPCRUN_RUN_DIR/result.json``, on rank 0.

    Args:
        **figures: What the run found, e.g. `test_accuracy=0.97`. Ranks, hosts, versions and the seconds of training are
            added.
    """
    me = world()
    if me.rank > 0:
        return
    say("  ".join(["result", *_figures(figures)]))
    if folder := _run_dir():
        versions = {"python": platform.python_version(), "tensorflow": tf.__version__, "keras": keras.__version__}
        versions["mpi"] = mpi_library()
        facts = {"ranks": me.size, "hosts": list(dict.fromkeys(me.hosts)), "training_seconds": round(sum(_seconds), 3)}
        new = folder / ".result.json.new"
        result = _jsonable({**figures, **facts, "versions": versions})
        new.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        new.replace(folder / "result.json")  # whoever polls for it never sees half of it


def _run_dir() -> Path | None:
    folder = os.environ.get("HPCRUN_RUN_DIR")
    return Path(folder) if folder else None


def _order(item: tuple[str, float]) -> tuple[bool, bool]:
    """Training before validation, and the loss first."""
    return item[0].startswith("val_"), not item[0].endswith("loss")


def _figures(logs: dict[str, Any]) -> list[str]:
    return [f"{name} {_figure(value)}" for name, value in logs.items()]


def _figure(value: Json) -> str:
    if isinstance(value, str | int):
        return str(value)
    if np.ndim(value) > 0:  # a metric of several classes
        return "[" + " ".join(_figure(each) for each in np.ravel(value)) + "]"
    value = float(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4f}" if value == 0 or abs(value) >= 0.001 else f"{value:.3e}"


def _jsonable(value: Json) -> Json:
    """Return plain Python values; NaN and infinity are no JSON, so they become null."""
    if isinstance(value, dict):
        return {name: _jsonable(each) for name, each in value.items()}
    if isinstance(value, str | int | None):
        return value
    if np.ndim(value) > 0:
        return [_jsonable(each) for each in value]
    value = float(value)
    return value if math.isfinite(value) else None
