"""Callback that saves the Keras models of the last and of the best epoch of a run, and its labels."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any

import keras

from hpcrun.train.followers import keep_model, remove_kept_models
from hpcrun.train.outputs.averaged_weights import averaged_weights
from hpcrun.train.saved_model_record import BEST, LABELS, LAST, RECORD, replace_by_link, replace_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hpcrun.train.types import Logs

_LARGER_IS_BETTER = ("acc", "auc", "precision", "recall", "f1", "fbeta", "fmeasure", "iou")
"""Parts of the names of metrics for which larger values are better, as in Keras's ModelCheckpoint."""


class SaveModels(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Callback for rank 0 that saves the model after each epoch.

    ``model.keras`` is the model of the last epoch, ``best.keras`` the model with the best validation metric so far.
    Both models contain the moving averages of the weights if the optimizer keeps averages (`use_ema=True`). Line k of
    ``labels.txt`` is the name of output k - 1. ``saved_model.json`` names the files. All files are replaced atomically,
    ``saved_model.json`` last. For followers of the run, the models of epochs are kept (`hpcrun.train.followers`).

    The best value so far is saved in checkpoints, so that a restart does not replace a better model.

    Args:
        folder: Folder for the files.
        labels: Class name of each output.
        monitor: The metric of the best model; default: ``val_accuracy``, or else ``val_loss``.
        mode: "min" or "max"; "auto" is max for accuracy, AUC, precision, recall, F-scores and IoU, else min.
    """

    def __init__(
        self, folder: Path, labels: Sequence[str] | None = None, monitor: str | None = None, mode: str = "auto"
    ) -> None:
        super().__init__()
        self.folder, self.labels, self.mode = folder, tuple(labels or ()), mode
        self.monitor = monitor
        self.best: float | None = None
        self.best_epoch: int | None = None

    def on_train_begin(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Write the labels."""
        if self.labels:
            replace_text(self.folder / LABELS, "".join(f"{' '.join(label.splitlines())}\n" for label in self.labels))

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Save the model as the last model, and as the best model if its metric is the best so far."""
        try:
            self._save_or_make_space()
            is_best = self._improves(logs or {})
            if is_best:
                self.best_epoch = epoch + 1
                replace_by_link(self.folder / LAST, self.folder / BEST)
            keep_model(self.folder / LAST, epoch + 1, is_best=is_best)  # before the record names the epoch
            self._record(epoch + 1)
        except Exception as error:  # noqa: BLE001  (a full disk or a layer that cannot be saved must not end the training)
            reason = getattr(error, "strerror", None) or " ".join(str(error).split())
            print(f"WARNING: the model is not saved in {self.folder}: {reason}", file=sys.stderr)

    def _save_or_make_space(self) -> None:
        try:
            self._save()
        except Exception:
            if not remove_kept_models(self.folder):  # the disk may be full
                raise
            self._save()

    def _save(self) -> None:
        temporary_file = self.folder / f".new.{LAST}"
        try:
            with averaged_weights(self.model):
                self.model.save(temporary_file)
            temporary_file.chmod(0o600 | self.folder.stat().st_mode & 0o044)
            temporary_file.replace(self.folder / LAST)
        finally:
            temporary_file.unlink(missing_ok=True)

    def _improves(self, logs: dict[str, Any]) -> bool:
        """Record the value of the metric, and return whether it is the best value so far."""
        if self.monitor is None:
            self.monitor = next((name for name in ("val_accuracy", "val_loss") if name in logs), None)
        if self.monitor not in logs:  # skip the epoch: it has no validation
            return False
        value = float(logs[self.monitor])
        name = self.monitor.lower()
        smaller_is_better = self.mode == "min" or (
            self.mode == "auto" and not any(word in name for word in _LARGER_IS_BETTER)
        )
        if math.isnan(value):
            return False
        is_best = self.best is None or (value < self.best if smaller_is_better else value > self.best)
        if is_best:
            self.best = value
        return is_best

    def _record(self, epoch: int) -> None:
        entry: dict[str, Any] = {"epoch": epoch, "file": LAST}
        if self.best_epoch is not None:
            entry |= {"best": BEST, "best_epoch": self.best_epoch, "metric": self.monitor, "best_value": self.best}
        if self.labels:
            entry["labels"] = LABELS
        entry |= describe_input(self.model)
        replace_text(self.folder / RECORD, json.dumps(entry, indent=2) + "\n")


def describe_input(model: keras.Model) -> dict[str, Any]:
    """Return the ``image_size`` and the ``scaling`` of a model's input; None if unknown.

    The scaling is "in the model" if layers of the model rescale pixels of 0 to 255.

    Args:
        model: A built model.
    """
    shape = getattr(model, "input_shape", None)
    size = shape[1] if isinstance(shape, tuple) and len(shape) == 4 else None
    has_scaling = any(
        isinstance(layer, keras.layers.Rescaling | keras.layers.Normalization)
        for layer in model._flatten_layers(include_self=False)  # noqa: SLF001
    )
    return {"image_size": size, "scaling": "in the model" if has_scaling else None}
