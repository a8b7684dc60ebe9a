"""The callbacks of a training that saves models, labels and metrics in the run directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError
from hpcrun.run.job import run_dir
from hpcrun.train.callbacks import Callback
from hpcrun.train.outputs.averaged_weights import ValidateAveraged
from hpcrun.train.outputs.bottleneck import Bottleneck
from hpcrun.train.outputs.finite_loss import StopAtNaN
from hpcrun.train.outputs.metric_files import MetricFiles
from hpcrun.train.outputs.saved_models import SaveModels
from hpcrun.train.outputs.step_log import StepLog

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
    """Return callbacks for `fit` that save models, labels and metrics in the run directory.

    After each epoch, rank 0 replaces ``model.keras``, and ``best.keras`` if the validation metric is the best so far.
    If the optimizer keeps moving averages of the weights (`use_ema=True`), the averages are validated and saved.
    ``saved_model.json`` names the files, ``labels.txt`` has the class names; `write_result` records the names of both
    files. ``metrics.csv`` and the folder ``tensorboard`` have the values of ``metrics.jsonl``. The first loss that is
    NaN or infinite ends the training with an error that names the step and the layer. At the end, rank 0 prints the
    bottleneck of the training.

    Args:
        labels: Class name of each output.
        log_every: Number of steps between log lines with step, loss and images/s; 0: no such lines.
        monitor: The metric of the best model; default: ``val_accuracy``, or else ``val_loss``.
        mode: "min" or "max"; "auto" is max for accuracy, AUC, precision, recall, F-scores and IoU, else min.
        folder: Folder for the files; default: ``$HPCRUN_RUN_DIR``; if that is unset, no files are written.

    Returns:
        The callbacks for `fit(callbacks=...)`, before the user's callbacks.

    Raises:
        HpcrunError: `mode` is unknown, `log_every` is negative, or `folder` cannot be created.
    """
    if mode not in {"auto", "min", "max"}:
        raise HpcrunError(f"run_callbacks got mode={mode!r}", hint='"min", "max" or "auto"')
    if log_every < 0:
        raise HpcrunError(f"run_callbacks got log_every={log_every}", hint="a number of steps, or 0 for no such lines")
    output_folder = Path(folder) if folder is not None else run_dir()
    if output_folder and folder is not None:
        try:
            output_folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HpcrunError(
                f"run_callbacks got folder={str(folder)!r}: {error.strerror}", hint="a folder to write to"
            ) from None
    all_rank_callbacks = [StopAtNaN(), Bottleneck(), ValidateAveraged(), *([StepLog(log_every)] if log_every else [])]
    rank_0_callbacks = (
        [MetricFiles(output_folder), SaveModels(output_folder, labels, monitor, mode)] if output_folder else []
    )
    return [Callback(c, all_ranks=True) for c in all_rank_callbacks] + [
        Callback(c, all_ranks=False) for c in rank_0_callbacks
    ]
