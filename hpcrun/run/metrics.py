"""Metrics of an epoch: a line in the log, and an object in ``metrics.jsonl``."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from hpcrun import permissions
from hpcrun.run.job import find_rank, print_line, run_dir
from hpcrun.run.values import format_metrics, to_json

if TYPE_CHECKING:
    from pathlib import Path

METRICS_FILE = "metrics.jsonl"
_TIMING_KEYS = ("images_per_second", "seconds")
_epoch_end_time = [time.perf_counter()]  # in a list, so that `log_metrics` can replace the value
_is_first_call = [True]


def log_metrics(epoch: int, epochs: int | None = None, **metrics: Any) -> None:
    """Print the metrics of an epoch and append them to ``$HPCRUN_RUN_DIR/metrics.jsonl``, on rank 0.

    After a restart, the first call removes the lines of this epoch and of later epochs, which the job repeats.

    Args:
        epoch: The epoch, from 1; may count intervals other than epochs, such as those between two evaluations.
        epochs: The number of epochs of the whole training.
        **metrics: Values by name, such as `loss=0.3`: numbers, arrays or tensors. `images_per_second` is the rate of
            all ranks together, `seconds` the duration (default: since the last call).
    """
    now = time.perf_counter()
    seconds, _epoch_end_time[0] = round(now - _epoch_end_time[0], 3), now
    if find_rank() > 0:
        return
    metrics = {**metrics, "seconds": metrics.get("seconds", seconds)}
    printed_metrics = {name: value for name, value in metrics.items() if name not in _TIMING_KEYS}
    print_epoch(epoch, epochs, printed_metrics, to_json(metrics.get("images_per_second")))
    if folder := run_dir():
        if _is_first_call[0]:
            remove_repeated_epochs(folder, (0, epoch - 1))
        append_epoch(folder, {"epoch": epoch, "epochs": epochs, **metrics})
    _is_first_call[0] = False


def print_epoch(epoch: int, epochs: int | None, metrics: dict[str, Any], rate: float | None, step: str = "") -> None:
    """Print the line of an epoch.

    Args:
        epoch: The epoch, from 1.
        epochs: The number of epochs; None if it is unknown.
        metrics: Values by name.
        rate: Images per second; None or 0 if it is unknown.
        step: The current step, as text, if the epoch has not ended; else empty.
    """
    position = f"epoch {epoch}/{epochs}" if epochs else f"epoch {epoch}"
    speed = f"{rate:{',.0f' if rate >= 10 else '.2g'}} images/s" if rate else ""
    print_line("  ".join(word for word in [position, step, *format_metrics(metrics), speed] if word))


def append_epoch(folder: Path, entry: dict[str, Any]) -> None:
    """Append an epoch to ``metrics.jsonl``; a full disk does not end the training.

    Args:
        folder: The run directory.
        entry: The values of the epoch, with ``epoch`` and ``epochs``.
    """
    line = json.dumps(to_json(entry)) + "\n"
    try:
        with open(folder / METRICS_FILE, "a", encoding="utf-8", opener=permissions.opener) as file:
            file.write(line)
    except OSError as error:
        print_line(f"WARNING: {folder / METRICS_FILE} lacks epoch {entry['epoch']}: {error.strerror}")


def remove_repeated_epochs(folder: Path, last_epoch: tuple[int, int]) -> None:
    """Remove the lines of incomplete epochs from ``metrics.jsonl``.

    Args:
        folder: The run directory.
        last_epoch: The index of the `fit` in the script, and the index of its last completed epoch, both from 0.
    """
    file = folder / METRICS_FILE
    if not file.exists():
        return
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    remaining_lines = [
        line for line in lines if line.endswith("\n") and _fit_and_epoch(line) <= last_epoch
    ]  # the last line may be incomplete
    if remaining_lines != lines:
        temporary_file = file.with_name(f".{file.name}")
        with open(temporary_file, "w", encoding="utf-8", opener=permissions.opener) as opened:
            opened.write("".join(remaining_lines))
        temporary_file.replace(file)


def _fit_and_epoch(line: str) -> tuple[int, int]:
    """Return the `fit` and the epoch of a line; (0, 0) for lines that are not epochs, which are kept."""
    try:
        entry = json.loads(line)
        return int(entry.get("fit", 0)), int(entry["epoch"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return 0, 0
