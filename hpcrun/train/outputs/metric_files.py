"""The metrics of ``metrics.jsonl`` as ``metrics.csv`` and for TensorBoard."""

from __future__ import annotations

import csv
import io
import json
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import keras

from hpcrun import permissions
from hpcrun.run.job import run_dir
from hpcrun.train.saved_model_record import replace_text

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.train.types import Logs


class MetricFiles(keras.callbacks.Callback):  # type: ignore[misc]  # keras is untyped
    """Callback for rank 0 that writes the epochs of ``metrics.jsonl`` in other formats.

    ``metrics.csv`` has one row per epoch. The folder ``tensorboard`` is written only if TensorFlow is loaded. Both
    files agree with ``metrics.jsonl``, also after a restart that repeats epochs.

    Args:
        folder: Folder for the files.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self._writers: dict[str, Any] = {}

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:  # noqa: ARG002
        """Write the epoch's metrics, which ``metrics.jsonl`` already contains."""
        entries = _read_epochs((run_dir() or self.folder) / "metrics.jsonl")
        if not entries:
            return
        try:
            replace_text(self.folder / "metrics.csv", _to_csv(entries))
            if "tensorflow" in sys.modules:
                self._write_event(entries[-1])
        except Exception as error:  # noqa: BLE001  (a disk error must not end training; TensorFlow has its own errors)
            reason = getattr(error, "strerror", None) or " ".join(str(error).split())
            print(f"WARNING: metrics.csv is not written in {self.folder}: {reason}", file=sys.stderr)

    def on_train_end(self, logs: Logs = None) -> None:  # noqa: ARG002
        """Close the event files."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _write_event(self, entry: dict[str, Any]) -> None:
        import tensorflow as tf

        name = f"fit-{entry['fit']}" if entry.get("fit") else "fit-0"
        folder = self.folder / "tensorboard" / name
        if name not in self._writers:
            permissions.make_folder(folder)
            self._writers[name] = tf.summary.create_file_writer(str(folder))
        # tf.summary.scalar would need the package tensorboard, which is otherwise needed only to read the files.
        scalar_metadata = tf.compat.v1.SummaryMetadata(data_class=1, plugin_data={"plugin_name": "scalars"})
        with self._writers[name].as_default():
            for tag, value in entry.items():
                if tag not in {"fit", "epoch", "epochs"} and isinstance(value, int | float):
                    tf.summary.write(
                        tag, tf.constant(float(value), tf.float32), step=entry["epoch"], metadata=scalar_metadata
                    )
            self._writers[name].flush()
        for file in folder.iterdir():  # TensorFlow sets permissions by the umask only
            file.chmod(0o600 | folder.stat().st_mode & 0o044)


def _read_epochs(file: Path) -> list[dict[str, Any]]:
    entries = []
    with suppress(OSError):
        for line in file.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):  # skip a line that the user wrote
                entry = json.loads(line)
                if isinstance(entry, dict) and "epoch" in entry:
                    entries.append(entry)
    return entries


def _to_csv(entries: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    columns = list(dict.fromkeys(key for entry in entries for key in entry))
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(entries)
    return text.getvalue()
