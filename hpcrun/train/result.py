"""Writer of the result of training with `hpcrun.train`, with speed, versions and saved models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcrun.run import result
from hpcrun.run.job import run_dir
from hpcrun.train.ranks.world import mpi_library, mpi_world
from hpcrun.train.saved_model_record import read_record

if TYPE_CHECKING:
    from pathlib import Path

training_seconds: list[float] = []  # duration of each `fit` so far
epoch_rates: list[float] = []  # images/s of each epoch so far
gradient_traffic: dict[str, str | float] = {}  # the codec of the last `fit`, and MB that this rank sent per step
time_shares: dict[str, float] = {}  # time shares of compute, data and network in the last `fit`, largest first
_SAVED_MODEL_KEYS = {"file", "best", "best_epoch", "labels"}  # keys of saved_model.json that a result contains


def list_rates(folder: Path | None) -> list[float]:
    """Return images/s of each epoch in a run's ``metrics.jsonl``, including epochs before a restart.

    Args:
        folder: The run directory; None outside of jobs.
    """
    return result.read_epochs(folder, "images_per_second") or epoch_rates


def samples_per_second() -> float:
    """Return the training rate of all ranks, the median of all epochs but the first; 0 before the first has ended."""
    return result.median_rate(list_rates(run_dir()))


def write_result(**metrics: float | str) -> None:
    """Print a run's result and write it to ``$HPCRUN_RUN_DIR/result.json``, on rank 0.

    Args:
        **metrics: Values to record, e.g. `test_accuracy=0.97`. This function adds images per second (the median of
            all epochs but the first), ranks, hosts, versions, seconds of `fit`, the codec of the gradients, MB sent
            per step, and the files of `run_callbacks`.
    """
    this_rank, folder = mpi_world(), run_dir()
    if this_rank.rank > 0:
        return
    environment: dict[str, Any] = {"ranks": this_rank.size, "hosts": list(dict.fromkeys(this_rank.hosts))}
    if training_seconds:
        environment["training_seconds"] = round(sum(training_seconds), 3)
    if time_shares:
        environment["bottleneck"], environment["time_shares"] = next(iter(time_shares)), time_shares
    environment |= gradient_traffic
    if folder and (saved := read_record(folder)):
        environment["saved_model"] = {key: value for key, value in saved.items() if key in _SAVED_MODEL_KEYS}
    result.save_result(metrics, list_rates(folder), environment, {"mpi": mpi_library()})
