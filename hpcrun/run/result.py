"""The result of a run: a line in its log, and ``result.json``."""

from __future__ import annotations

import json
import platform
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hpcrun import permissions
from hpcrun.run.job import count_ranks, find_rank, list_hosts, print_line, run_dir
from hpcrun.run.metrics import METRICS_FILE
from hpcrun.run.values import format_metrics, to_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LIBRARIES = ("tensorflow", "torch", "jax", "keras")


def write_result(**metrics: Any) -> None:
    """Print a run's result and write it to ``$HPCRUN_RUN_DIR/result.json``, on rank 0.

    Args:
        **metrics: Values to record, such as `test_accuracy=0.97`: numbers, texts, arrays or tensors. The function adds
            images per second (see `save_result`) and the total seconds of the epochs of `log_metrics`, the numbers of
            ranks and hosts, and versions.
    """
    if find_rank() == 0:
        environment: dict[str, Any] = {"ranks": count_ranks(), "hosts": list_hosts()}
        if seconds := read_epochs(run_dir(), "seconds"):
            environment["training_seconds"] = round(sum(seconds), 3)
        save_result(metrics, read_epochs(run_dir(), "images_per_second"), environment)


def save_result(
    metrics: dict[str, Any],
    rates: Sequence[float],
    environment: dict[str, Any],
    versions: dict[str, str] | None = None,
) -> None:
    """Print a result, and write it to ``result.json`` if this process runs in a job.

    Args:
        metrics: Values by name.
        rates: Images per second of each epoch. The result gets their `median_rate`.
        environment: Values that are written to the file, but not printed.
        versions: Versions of other libraries, by name.
    """
    if rates:
        metrics.setdefault("images_per_second", median_rate(rates))
    print_line("  ".join(["result", *format_metrics(metrics)]))
    if folder := run_dir():
        library_versions = {name: str(sys.modules[name].__version__) for name in _LIBRARIES if name in sys.modules}
        all_versions = {"python": platform.python_version(), **library_versions, **(versions or {})}
        temporary_file = folder / ".result.json.new"
        result = to_json({**metrics, **environment, "versions": all_versions})
        with open(temporary_file, "w", encoding="utf-8", opener=permissions.opener) as opened:
            opened.write(json.dumps(result, indent=2) + "\n")
        temporary_file.replace(
            folder / "result.json"
        )  # replace the file atomically: a reader never sees an incomplete file


def median_rate(rates: Sequence[float]) -> float:
    """Return the median of the rates of all epochs but the first, in which frameworks compile the model.

    Args:
        rates: The rate of each epoch; of a single epoch, its rate is returned, and 0 if there is none.
    """
    from statistics import median

    return median(rates[1:] or rates or [0.0])


def read_epochs(folder: Path | None, key: str) -> list[float]:
    """Return the positive values under a key of the run's epochs, including epochs before a restart.

    Args:
        folder: The run directory; None outside of a job.
        key: The name of the value in ``metrics.jsonl``.
    """
    values = []
    with suppress(OSError):  # the file may not exist yet
        for line in (folder / METRICS_FILE).read_text(encoding="utf-8").splitlines() if folder else ():
            with suppress(ValueError, TypeError, KeyError):  # skip a line that the user wrote
                values.append(float(json.loads(line)[key]))
    return [value for value in values if value > 0]
