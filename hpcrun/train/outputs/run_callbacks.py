"""The callbacks of a training that leaves its models, labels and metrics in the run directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.train.callbacks import Callback
from hpcrun.train.outputs.averaged_weights import ValidateAveraged
from hpcrun.train.outputs.bottleneck import Bottleneck
from hpcrun.train.outputs.finite_loss import StopAtNaN
from hpcrun.train.outputs.metric_files import MetricFiles
from hpcrun.train.outputs.saved_models import SaveModels
from hpcrun.train.outputs.step_log import StepLog
from hpcrun.train.result import run_dir

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence


def run_callbacks(
    labels: Sequence[str] | None = None,
    *,
    log_every: int = 0,
    monitor: str | None = None,
    mode: str = "auto",
    folder: str | os.PathLike[str] | None = None,
) -> list[Callback]:
    """Return callbacks for `fit` that leave a run's models and labels in its directory.

    After each epoch, rank 0 replaces ``model.keras``, and ``best.keras`` if the validation metric is the best so far.
    If the optimizer keeps moving averages of the weights (`use_ema=True`), these are saved, and validated.
    ``saved_model.json`` names the files, ``labels.txt`` has the names of the outputs; `write_result` records them.
    ``metrics.csv`` and the folder ``tensorboard`` repeat ``metrics.jsonl``. The first loss that is NaN or infinite ends
    the training with an error that names step and layer. At the end, rank 0 prints what limited the speed.

    Args:
        labels: Names of the outputs, in their order.
        log_every: Print the step, its loss and images/s every so many steps; 0 never.
        monitor: The metric of the best model; default: ``val_accuracy``, or else ``val_loss``.
        mode: "min" or "max"; "auto" is max for accuracy, AUC, precision, recall, F-scores and IoU, else min.
        folder: Where the files are (default: ``$HPCRUN_RUN_DIR``; without both, no files are written).

    Returns:
        A list for `fit(callbacks=...)`, which other callbacks may follow.

    Raises:
        HpcrunError: `mode` is not one of the three, `log_every` is negative, or `folder` cannot be made.
    """
    if mode not in {"auto", "min", "max"}:
        raise HpcrunError(f"run_callbacks got mode={mode!r}", hint='"min", "max" or "auto"')
    if log_every < 0:
        raise HpcrunError(f"run_callbacks got log_every={log_every}", hint="a number of steps, or 0 for no such lines")
    target = Path(folder) if folder is not None else run_dir()
    if target and folder is not None:
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HpcrunError(
                f"run_callbacks got folder={str(folder)!r}: {error.strerror}", hint="a folder to write to"
            ) from None
    everywhere = [StopAtNaN(), Bottleneck(), ValidateAveraged(), *([StepLog(log_every)] if log_every else [])]
    writers = [MetricFiles(target), SaveModels(target, labels, monitor, mode)] if target else []
    return [Callback(c, all_ranks=True) for c in everywhere] + [Callback(c, all_ranks=False) for c in writers]
