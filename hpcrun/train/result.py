"""The result of a run: one line in its log, and ``result.json``."""

from __future__ import annotations

import json
import math
import os
import platform
import sys
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcrun import permissions
from hpcrun.train.ranks.world import mpi_library, mpi_world, print_line
from hpcrun.train.saved_model_record import read_record

if TYPE_CHECKING:
    from hpcrun.train.types import Json

training_seconds: list[float] = []  # duration of each `fit` so far
epoch_rates: list[float] = []  # images/s of each epoch so far
time_shares: dict[str, float] = {}  # of compute, data and network in the last `fit`, largest first
_SAVED_MODEL_KEYS = {"file", "best", "best_epoch", "labels"}  # keys of saved_model.json that a result contains


def list_rates(folder: Path | None) -> list[float]:
    """Return images/s of each epoch of a run, also of epochs before a restart, from ``metrics.jsonl``.

    Args:
        folder: The run directory; None outside of jobs.
    """
    recorded_rates = []
    with suppress(OSError):  # no epoch is complete
        for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines() if folder else ():
            with suppress(ValueError, TypeError, KeyError):  # a line that the user wrote
                recorded_rates.append(float(json.loads(line)["images_per_second"]))
    return [rate for rate in recorded_rates if rate > 0] or epoch_rates


def write_result(**metrics: float | str) -> None:
    """Print a run's result and write it to ``$HPCRUN_RUN_DIR/result.json``, on rank 0.

    Args:
        **metrics: Values to record, e.g. `test_accuracy=0.97`. This function adds images per second (median of all
            epochs), ranks, hosts, versions, seconds of `fit`, and the files that `run_callbacks` saved.
    """
    me = mpi_world()
    if me.rank > 0:
        return
    if rates := list_rates(run_dir()):
        metrics.setdefault("images_per_second", median(rates))
    print_line("  ".join(["result", *format_metrics(metrics)]))
    if folder := run_dir():
        versions = {"python": platform.python_version()}
        loaded_libraries = [name for name in ("tensorflow", "torch", "jax", "keras") if name in sys.modules]
        versions |= {name: str(sys.modules[name].__version__) for name in loaded_libraries}
        versions["mpi"] = mpi_library()
        environment: dict[str, Any] = {"ranks": me.size, "hosts": list(dict.fromkeys(me.hosts))}
        if training_seconds:
            environment["training_seconds"] = round(sum(training_seconds), 3)
        if time_shares:
            environment["bottleneck"], environment["time_shares"] = next(iter(time_shares)), time_shares
        if saved := read_record(folder):
            environment["saved_model"] = {key: value for key, value in saved.items() if key in _SAVED_MODEL_KEYS}
        draft = folder / ".result.json.new"
        result = to_json({**metrics, **environment, "versions": versions})
        with open(draft, "w", encoding="utf-8", opener=permissions.opener) as file:
            file.write(json.dumps(result, indent=2) + "\n")
        draft.replace(folder / "result.json")  # atomic: a reader never sees an incomplete file


def run_dir() -> Path | None:
    """Return the run directory; None outside of jobs."""
    folder = os.environ.get("HPCRUN_RUN_DIR")
    return Path(folder) if folder else None


def format_metrics(metrics: dict[str, Any]) -> list[str]:
    """Format each metric as its name and value."""
    return [f"{name} {_format_value(value)}" for name, value in metrics.items()]


def _format_value(value: Json) -> str:
    if isinstance(value, str | int):
        return str(value)
    if np.ndim(value) > 0:  # a metric with a value per class
        return "[" + " ".join(_format_value(item) for item in np.ravel(value)) + "]"
    value = float(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4f}" if value == 0 or abs(value) >= 0.001 else f"{value:.3e}"


def to_json(value: Json) -> Json:
    """Convert a value to JSON values; NaN and infinity become null."""
    if isinstance(value, dict):
        return {name: to_json(item) for name, item in value.items()}
    if isinstance(value, str | int | None):
        return value
    if np.ndim(value) > 0:
        return [to_json(item) for item in value]
    value = float(value)
    return value if math.isfinite(value) else None
